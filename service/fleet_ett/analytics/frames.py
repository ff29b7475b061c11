"""Ledgers as pandas frames, one row a cell or a segment.

Stamps are UTC `datetime64[ns, UTC]`; wall time is in seconds, GPU time in GPU-seconds as floats: sums of
integer GPU-ns over a fleet do not fit 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from fleet_ett.core.ledger import FleetBooks, Ledger

NS = 1e9
CELLS = ("job", "cluster", "team", "model", "attempt", "hour", "heading", "phase", "component", "repeated")
SEGMENTS = (
    "job",
    "attempt",
    "start",
    "end",
    "heading",
    "phase",
    "component",
    "rank",
    "node",
    "repeated",
    "gpus",
)


def cells_frame(books: FleetBooks) -> pd.DataFrame:
    """The hourly cells of all jobs: columns `CELLS`, `wall_s`, `gpu_s`, `settled_wall_s`, `settled_gpu_s`."""
    rows = [
        (
            *_who(ledger),
            attempt.summary.attempt,
            cell.hour,
            *(cell.heading, cell.phase, cell.component, cell.repeated),
            *(cell.wall_ns / NS, cell.gpu_ns / NS, cell.settled_wall_ns / NS, cell.settled_gpu_ns / NS),
        )
        for ledger in books.jobs.values()
        for attempt in ledger.attempts
        for cell in attempt.cells
    ]
    amounts = ("wall_s", "gpu_s", "settled_wall_s", "settled_gpu_s")
    frame = pd.DataFrame.from_records(rows, columns=[*CELLS, *amounts])
    frame["hour"] = pd.to_datetime(frame["hour"].astype("int64"), utc=True)
    return frame


def segments_frame(ledger: Ledger) -> pd.DataFrame:
    """The timeline of one job: columns `SEGMENTS` and `wall_s`, in order of time."""
    rows = [
        (ledger.job, attempt.summary.attempt, *(getattr(row, name) for name in SEGMENTS[2:]))
        for attempt in ledger.attempts
        for row in attempt.segments.rows()
    ]
    frame = pd.DataFrame.from_records(rows, columns=list(SEGMENTS))
    frame["rank"] = frame["rank"].astype("Int64")
    frame["wall_s"] = (frame["end"] - frame["start"]) / NS
    for name in ("start", "end"):
        frame[name] = pd.to_datetime(frame[name].astype("int64"), utc=True)
    return frame


def _who(ledger: Ledger) -> tuple[str, str, str, str]:
    meta = ledger.summary.meta
    return ledger.job, meta.cluster, meta.team, meta.model
