"""Sums into figures: ratios are made here, from sums, and nowhere else on the reader's side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.core.ratios import ett
from fleet_ett.core.taxonomy import HEADINGS
from fleet_ett.reads import ETT_BY, RATIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet_ett.reads import Row

# Sums that figures are made of, not shown themselves.
INTERNAL = ("settled_productive_wall_ns", "settled_productive_gpu_ns", "unknown_wall_ns", "summary")


def number(row: Mapping[str, object], name: str) -> int:
    """An exact integer of a row."""
    value = row[name]
    assert isinstance(value, int), (name, value)
    return value


def pairs(value: object) -> dict[str, tuple[int, int]]:
    """{name: [wall ns, GPU-ns]} as the core's summaries keep them, by name."""
    assert isinstance(value, dict)
    return {name: (int(wall), int(gpu)) for name, (wall, gpu) in sorted(value.items())}


def every_heading(sums: object) -> dict[str, int]:
    """Amounts by heading: all of the contract, with 0 where nothing was booked, then custom ones."""
    assert isinstance(sums, dict)
    custom = sorted(name for name in sums if name not in HEADINGS)
    return {name: int(sums.get(name, 0)) for name in (*HEADINGS, *custom)}


def with_parts(row: Row) -> Row:
    """A row of sums with its provisional part: what is held and not settled."""
    return row | {
        "provisional_wall_ns": number(row, "wall_ns") - number(row, "settled_wall_ns"),
        "provisional_gpu_ns": number(row, "gpu_ns") - number(row, "settled_gpu_ns"),
    }


def fleet_figures(row: Row) -> Row:
    """A group's sums as ETT in its three weights (a fleet's own measure is the GPU-weighted one)."""
    row = with_parts(row)
    by_gpu = ett(number(row, "productive_gpu_ns"), number(row, "gpu_ns"))
    settled = ett(number(row, "settled_productive_gpu_ns"), number(row, "settled_gpu_ns"))
    row |= {
        "ett": by_gpu,
        "ett_gpu_weighted": by_gpu,
        "ett_wall_weighted": ett(number(row, "productive_wall_ns"), number(row, "wall_ns")),
        "ett_settled": settled,
        "headings": every_heading(row["headings"]),
        "gpu_headings": every_heading(row["gpu_headings"]),
    }
    return {
        name: value
        for name, value in row.items()
        if name != "ratios" and not name.startswith("settled_productive")
    }


def added_up(rows: Sequence[Row], weights: Row | None = None) -> Row:
    """The sums of all groups together; there is at least one.

    `weights`: those of all jobs, where a job is in several groups.
    """
    out: Row = {
        name: sum(number(row, name) for row in rows)
        for name, value in rows[0].items()
        if isinstance(value, int) and name not in ETT_BY
    }
    for name in ("headings", "gpu_headings"):
        sums: dict[str, int] = {}
        for row in rows:
            told = row[name]
            assert isinstance(told, dict)
            for heading, amount in told.items():
                sums[heading] = sums.get(heading, 0) + int(amount)
        out[name] = sums
    out |= weights or {}
    jobs, ratios = number(out, "jobs"), number(out, "ratios")
    return out | {"ett_job_weighted": float(ratios) / float(jobs) * RATIO if jobs else None}


def job_figures(row: Row) -> Row:
    """A job's sums as ETT by wall time, and its data quality."""
    row = with_parts(row)
    row |= {
        "ett": ett(number(row, "productive_wall_ns"), number(row, "wall_ns")),
        "ett_gpu_weighted": ett(number(row, "productive_gpu_ns"), number(row, "gpu_ns")),
        "ett_settled": ett(number(row, "settled_productive_wall_ns"), number(row, "settled_wall_ns")),
        "unknown_share": ett(number(row, "unknown_wall_ns"), number(row, "wall_ns")),
    }
    return {name: value for name, value in row.items() if name not in INTERNAL}
