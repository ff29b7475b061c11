"""Keyed work summed up over the life of each job, in the transactions that change it.

A job's rows are written by nobody but who holds the job, so nothing waits here, and nothing is left to fold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from fleet_ett.postgres.arrays import rows_of, told
from fleet_ett.postgres.tables import work_lives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    Row = tuple[Any, ...]

KEYS = ("job_id", "phase", "work_key")
SUMS = ("times", "wall_ns", "gpu_ns", "seen_wall_ns", "seen_gpu_ns")
OF_WORK = (
    "count(*)",
    "sum(wall_ns)",
    "sum(gpu_ns)",
    "coalesce(sum(wall_ns) FILTER (WHERE seen_in_job), 0)",
    "coalesce(sum(gpu_ns) FILTER (WHERE seen_in_job), 0)",
)

_COLUMNS = ", ".join((*KEYS, *SUMS))
_RAISED = ", ".join(f"{name} = w.{name} + EXCLUDED.{name}" for name in SUMS)
_ADD = text(
    f"INSERT INTO work_lives AS w ({_COLUMNS}) SELECT {', '.join(f'n.{name}' for name in (*KEYS, *SUMS))}"  # noqa: S608
    f" FROM {rows_of(work_lives, (*KEYS, *SUMS))} ON CONFLICT ({', '.join(KEYS)}) DO UPDATE SET {_RAISED}"
)
_TAKE_OUT = text(
    f"INSERT INTO work_lives AS w ({_COLUMNS})"  # noqa: S608 - our own names
    f" SELECT {', '.join((*KEYS, *(f'-({one})' for one in OF_WORK)))} FROM work"
    f" WHERE job_id = :job_id AND attempt_id = ANY(:attempts) GROUP BY {', '.join(KEYS)}"
    f" ON CONFLICT ({', '.join(KEYS)}) DO UPDATE SET {_RAISED}"
)
_PRUNE = text("DELETE FROM work_lives WHERE job_id = ANY(:jobs) AND times = 0")
_MADE_OF_WORK = f"SELECT {', '.join((*KEYS, *OF_WORK))} FROM work GROUP BY {', '.join(KEYS)}"  # noqa: S608
_DIFFERENT = text(
    f"SELECT count(*) FROM (SELECT {', '.join(KEYS)} FROM (SELECT {_COLUMNS} FROM work_lives UNION ALL"  # noqa: S608
    f" SELECT {', '.join((*KEYS, *(f'-({one})' for one in OF_WORK)))} FROM work GROUP BY {', '.join(KEYS)})"
    f" AS u ({_COLUMNS}) GROUP BY {', '.join(KEYS)}"
    f" HAVING {' OR '.join(f'sum({name}) <> 0' for name in SUMS)}) AS differing"
)


def note(conn: Connection, changed: Iterable[tuple[Row | None, Row | None]]) -> None:
    """Add what held jobs change: rows of `work` before and after, None where there is none."""
    sums: dict[Row, list[int]] = {}
    for pair in changed:
        for sign, row in zip((-1, 1), pair, strict=True):
            if row is not None:
                job_id, _, phase, work_key, _, wall, gpu, seen = row
                more = (1, wall, int(gpu), wall if seen else 0, int(gpu) if seen else 0)
                total = sums.setdefault((job_id, phase, work_key), [0] * len(SUMS))
                for place, amount in enumerate(more):
                    total[place] += sign * amount
    rows = [(*key, *amounts) for key, amounts in sorted(sums.items()) if any(amounts)]
    if rows:
        conn.execute(_ADD, told((*KEYS, *SUMS), rows))
        if any(row[len(KEYS)] < 0 for row in rows):
            conn.execute(_PRUNE, {"jobs": sorted({row[0] for row in rows})})


def take_out(conn: Connection, job_id: int, attempts: Iterable[int]) -> None:
    """Take out the rows of `work` of these attempts of a held job, which are about to go."""
    conn.execute(_TAKE_OUT, {"job_id": job_id, "attempts": list(attempts)})
    conn.execute(_PRUNE, {"jobs": [job_id]})


def backfill(conn: Connection) -> None:
    """Make them of all work, where there are none (`refill.py`)."""
    conn.execute(text(f"INSERT INTO work_lives ({_COLUMNS}) {_MADE_OF_WORK}"))


def differences(conn: Connection) -> list[str]:
    """Where they are not the sums of the work, in words; nothing but after a bug."""
    found = conn.execute(_DIFFERENT).scalar_one()
    return [f"work_lives: {found} rows differ from the work"] if found else []
