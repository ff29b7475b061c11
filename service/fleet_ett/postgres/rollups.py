"""Keeps the sums of the ledger.

A booking appends what it changed in the ledger to `ledger_deltas`, in its own transaction: one statement, and no row
that another booking waits for. `fold` adds the deltas up into the roll-ups, about once a second, one process at a
time. Readers add what is not folded yet, so that they see every booking the moment it commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from fleet_ett.postgres import counters, totals, weights
from fleet_ett.postgres.arrays import rows_of, told
from fleet_ett.postgres.pool import told_unavailable, transaction
from fleet_ett.postgres.sums import UNITS, sum_of
from fleet_ett.postgres.tables.rollups import (
    AMOUNTS,
    LABELS,
    NAMES,
    fleet_days,
    fleet_hours,
    job_days,
    job_hours,
    job_lives,
    ledger_days,
    ledger_deltas,
    ledger_lives,
    team_days,
    team_hours,
    tenant_days,
)
from fleet_ett.reads import DAY_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection, Engine, Table

    Row = tuple[Any, ...]

LOCK = 0x6574_7404
BLOAT = 8 * 2**20  # bytes of a table of deltas at which its dead rows are cleared away
PERIODS = {"day_ns": f"d.hour_ns - d.hour_ns % {DAY_NS}", "hour_ns": "d.hour_ns"}

_DELTA = (*NAMES, "hour_ns", *LABELS, *AMOUNTS)
_CELL = ("job_id", *_DELTA[len(NAMES) :])
_INTO = f"INSERT INTO ledger_deltas (job_id, {', '.join(_DELTA)})"
_OWN = ", ".join(f"j.{name}" for name in NAMES)
_GROUP = ", ".join(f"l.{name}" for name in ("hour_ns", *LABELS))
_NOTE = text(
    f"{_INTO} SELECT j.job_id, {_OWN}, {', '.join(f'n.{name}' for name in _CELL[1:])}"  # noqa: S608 - our own names
    f" FROM {rows_of(ledger_deltas, _CELL)} JOIN jobs j USING (job_id)"
)
_RENAME = text(
    f"{_INTO} SELECT j.job_id, {', '.join(f's.{name}' for name in NAMES)}, {_GROUP},"  # noqa: S608
    f" {', '.join(f's.sign * sum(l.{name})' for name in AMOUNTS)} FROM jobs j JOIN ledger l USING (job_id)"
    f" CROSS JOIN LATERAL (VALUES (-1, {_OWN}), (1, {', '.join(f':{name}' for name in NAMES)}))"
    f" AS s (sign, {', '.join(NAMES)}) WHERE j.job_id = :job_id"
    f" GROUP BY j.job_id, s.sign, {', '.join(f's.{name}' for name in NAMES)}, {_GROUP}"
)
_TAKE_OUT = text(
    f"{_INTO} SELECT j.job_id, {_OWN}, {_GROUP}, {', '.join(f'-l.{name}' for name in AMOUNTS)}"  # noqa: S608
    " FROM jobs j JOIN ledger l USING (job_id) WHERE j.job_id = :job_id AND l.attempt_id = ANY(:attempts)"
)


def _source(table: str, hour: str) -> str:
    """Rows of the ledger, or of its days, as `ledger_deltas` has them."""
    columns = ("l.job_id", _OWN, f"l.{hour} AS hour_ns", *(f"l.{name}" for name in (*LABELS, *AMOUNTS)))
    return f"(SELECT {', '.join(columns)} FROM {table} l JOIN jobs j USING (job_id))"  # noqa: S608


_LEDGER, _LEDGER_DAYS = _source("ledger", "hour_ns"), _source("ledger_days", "day_ns")
_SLICES = "CROSS JOIN LATERAL (VALUES ('', ''), {}) AS s (slice, name)".format(
    ", ".join(f"('{name}', d.{name})" for name in NAMES)
)

_SLICE_NAMES = ", ".join(f"'{name}'" for name in ("", *NAMES))

_WAITS = text("SELECT EXISTS (SELECT 1 FROM ledger_deltas) OR EXISTS (SELECT 1 FROM counter_deltas)")
_ALONE = text("SELECT pg_try_advisory_xact_lock(:lock)")
_SIZE = text("SELECT greatest(pg_relation_size('ledger_deltas'), pg_relation_size('counter_deltas'))")
# made once a connection: a table an hour would leave its rows in the catalogue
_TAKEN = "CREATE TEMPORARY TABLE IF NOT EXISTS taken_deltas (LIKE ledger_deltas) ON COMMIT DELETE ROWS"
_TAKE = "WITH taken AS (DELETE FROM ledger_deltas RETURNING *) INSERT INTO taken_deltas SELECT * FROM taken"


@dataclass(frozen=True, slots=True)
class _Rollup:
    """A table of sums: where its keys come from, and with what the rows are multiplied first."""

    table: Table
    keys: dict[str, str]
    spread: str = ""

    def sums(self) -> dict[str, str]:
        """Each amount as SQL."""
        amounts = (c.name for c in self.table.columns if c.name.endswith(UNITS))
        return {name: sum_of(name) for name in amounts}


def _keys(*names: str, period: str = "day_ns") -> dict[str, str]:
    """The keys of a table as SQL; `period` is that of its rows, none where it is "" (a job's life)."""
    out = {name: f"s.{name}" if name in ("slice", "name") else f"d.{name}" for name in names}
    return out | ({period: PERIODS[period]} if period else {})


# `ledger_days` first: what is made of the whole ledger makes the other days of it.
ROLLUPS = (
    _Rollup(ledger_days, _keys("job_id", *LABELS)),
    _Rollup(ledger_lives, _keys("job_id", *LABELS, period="")),
    _Rollup(job_lives, _keys("job_id", period="")),
    _Rollup(job_days, _keys("job_id")),
    _Rollup(team_days, _keys("cluster", "team")),
    _Rollup(tenant_days, _keys(*NAMES, *LABELS)),
    _Rollup(fleet_days, _keys("slice", "name", *LABELS), _SLICES),
    _Rollup(fleet_hours, _keys("slice", "name", *LABELS, period="hour_ns"), _SLICES),
    _Rollup(team_hours, _keys("cluster", "team", period="hour_ns")),
    _Rollup(job_hours, _keys("job_id", period="hour_ns")),
)


def note(conn: Connection, changed: Iterable[tuple[Row | None, Row | None]]) -> None:
    """Append what booked jobs change in their ledgers: rows of `ledger` before and after, None where there is none.

    The jobs' rows have the names yet under which the rows before were noted.
    """
    cells: dict[Row, list[int]] = {}
    for pair in changed:
        for sign, row in zip((-1, 1), pair, strict=True):
            if row is not None:
                cell = cells.setdefault((row[0], *row[2:7]), [0] * len(AMOUNTS))
                for place, amount in enumerate(row[7:11]):
                    cell[place] += sign * amount
    rows = [(*key, *amounts) for key, amounts in cells.items() if any(amounts)]
    if rows:
        conn.execute(_NOTE, told(_CELL, rows))


def rename(conn: Connection, job_id: int, names: Mapping[str, str]) -> None:
    """Move all of a job's ledger, as it is now, to the names that the job's row gets next."""
    conn.execute(_RENAME, {"job_id": job_id, **{name: names[name] for name in NAMES}})


def take_out(conn: Connection, job_id: int, attempts: Iterable[int]) -> None:
    """Note that all ledger rows of these attempts of a held job are about to go."""
    conn.execute(_TAKE_OUT, {"job_id": job_id, "attempts": list(attempts)})


def fold(engine: Engine) -> bool:
    """Add up what was booked; whether there was anything. Harmless when done by several at once."""
    with transaction(engine) as conn:
        if not conn.scalar(_ALONE, {"lock": LOCK}) or not conn.scalar(_WAITS):
            return False
        conn.exec_driver_sql(_TAKEN)
        conn.exec_driver_sql(_TAKE)
        counters.fold(conn)
        weights.fold(conn)
        for one in ROLLUPS:
            conn.execute(text(_add(one, "taken_deltas")))
            conn.execute(text(_prune(one, "taken_deltas")))
        totals.fold(conn)
        bloated = bool(conn.scalar(_SIZE) > BLOAT)
    if bloated:
        with told_unavailable(), engine.connect() as conn:
            conn.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(
                "VACUUM ledger_deltas, counter_deltas"
            )
    return True


def backfill(conn: Connection) -> None:
    """Make them of the ledger, where there are none (`refill.py`)."""
    for one in ROLLUPS:
        of_days = one.table is not ledger_days and "hour_ns" not in one.keys
        conn.execute(text(_add(one, _LEDGER_DAYS if of_days else _LEDGER)))
        conn.exec_driver_sql(f"ANALYZE {one.table.name}")
    weights.backfill(conn)
    totals.backfill(conn)


def differences(conn: Connection) -> list[str]:
    """What the roll-ups and the deltas have otherwise than the ledger, in words; nothing but after a bug."""
    out = []
    for one in ROLLUPS:
        found = conn.execute(text(_difference(one))).scalar_one()
        if found:
            out.append(f"{one.table.name}: {found} rows differ from the ledger")
    return [*out, *weights.differences(conn), *totals.differences(conn)]


def _add(one: _Rollup, source: str) -> str:
    """Add the rows of `source`, which has the columns of `ledger_deltas`, to a roll-up."""
    sums = one.sums()
    order = next(one.keys[name] for name in ("hour_ns", "day_ns", "job_id") if name in one.keys)
    raised = ", ".join(f"{amount} = r.{amount} + EXCLUDED.{amount}" for amount in sums)
    return (
        f"INSERT INTO {one.table.name} AS r ({', '.join((*one.keys, *sums))})"  # noqa: S608 - our own names
        f" SELECT {', '.join((*one.keys.values(), *sums.values()))} FROM {source} d {one.spread}"
        f" GROUP BY {', '.join(one.keys.values())}"
        f" HAVING {' OR '.join(f'{amount} <> 0' for amount in sums.values())}"
        f" ORDER BY {order}"  # what is read together lies together
        f" ON CONFLICT ({', '.join(one.keys)}) DO UPDATE SET {raised}"
    )


def _prune(one: _Rollup, source: str) -> str:
    """Drop what is 0 now. No amount is negative or without wall time, so nothing is left where that is 0.

    Looked for through the primary key: of the jobs that changed, or in the periods that did.
    """
    period = next((name for name in ("hour_ns", "day_ns") if name in one.keys), "")
    if "job_id" in one.keys:
        narrow = [name for name in ("job_id", period) if name]
        taken = f"SELECT {', '.join(one.keys[name] for name in narrow)} FROM {source} d WHERE d.wall_ns < 0"  # noqa: S608
        where = f"({', '.join(narrow)}) IN ({taken})"
    else:
        taken = f"SELECT DISTINCT {one.keys[period]} FROM {source} d WHERE d.wall_ns < 0"  # noqa: S608
        where = f"{period} = ANY (ARRAY({taken}))"
        if "slice" in one.keys:
            where += f" AND slice IN ({_SLICE_NAMES})"
    return f"DELETE FROM {one.table.name} WHERE wall_ns = 0 AND {where}"  # noqa: S608 - our own names


def _difference(one: _Rollup) -> str:
    """How many rows of a roll-up, with the deltas on top, are not what the ledger adds up to."""
    columns, sums = (*one.keys, *one.sums()), one.sums()

    def summed(source: str, sign: str) -> str:
        values = [f"{sign}{amount}" for amount in sums.values()]
        return (
            f"SELECT {', '.join((*one.keys.values(), *values))} FROM {source} d {one.spread}"  # noqa: S608
            f" GROUP BY {', '.join(one.keys.values())}"
        )

    parts = (
        f"SELECT {', '.join(columns)} FROM {one.table.name}",  # noqa: S608
        summed("ledger_deltas", ""),
        summed(_LEDGER, "-"),
    )
    differ = " OR ".join(f"sum({amount}) <> 0" for amount in sums)
    return (
        f"SELECT count(*) FROM (SELECT {', '.join(one.keys)} FROM ({' UNION ALL '.join(parts)}) AS u"  # noqa: S608
        f" GROUP BY {', '.join(one.keys)} HAVING {differ}) AS differing"
    )
