"""The other convention: an execution of a step that a later attempt starts again at or below was lost.

`ett` books the first execution as productive, since it consumed new data when it ran; this view, as in
ml-goodput-measurement, discounts it afterwards and calls the surviving execution productive. Same tiles,
other buckets: they add up to the wall time. `startup` holds the excess of an attempt's first step over the
job's median step; the recovery gap runs from the start of the step in flight at the crash.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.summary import TAIL_HEADINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fleet_ett.core.attempt import AttemptBooks, Windows

    Ints = NDArray[np.int64]
    Position = tuple[Ints, Ints]

_BUCKET_OF_BADPUT = {
    "TPU_INITIALIZATION": "startup",
    "TRAINING_PREP": "startup",
    "PROGRAM_STARTUP": "startup",
    "DATA_LOADING_SYNC": "data_wait",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME": "checkpoint",
    "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME": "checkpoint",
    "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION": "recovery_gap",
}


@dataclass(slots=True)
class Goodput:
    """The buckets of the goodput view in ns; they add up to `total`.

    `lost_progress`: of `repeated_work`, what no later attempt has made up yet.
    """

    productive: int = 0
    startup: int = 0
    data_wait: int = 0
    checkpoint: int = 0
    recovery_gap: int = 0
    repeated_work: int = 0
    other: int = 0
    total: int = 0
    lost_progress: int = 0

    def add(self, bucket: str, amount: int) -> None:
        """Put `amount` ns into a bucket and the total."""
        setattr(self, bucket, getattr(self, bucket) + amount)
        self.total += amount

    def to_json(self) -> dict[str, float]:
        """Seconds by bucket (`productive_s` ...), as the timelines of the peer give them."""
        return {f"{f.name}_s": getattr(self, f.name) / 1e9 for f in fields(self)}


def goodput(attempts: Sequence[AttemptBooks]) -> Goodput:
    """The goodput view of a job from the books of its attempts, in order, each booked as a whole.

    Raises ValueError for books that went on from a seam, which have not seen all windows.
    """
    out = Goodput()
    windows = [_expanded(_all_windows(books)) for books in attempts]
    sampled = all(bool(w.where.sampled.all()) for w in windows)
    positions = [_positions(w, sampled=sampled) for w in windows]
    borders, reached = _later(windows, positions)
    median = _median_step(windows)
    for k, books in enumerate(attempts):
        _attempt(out, books, windows[k], positions[k], borders[k], reached[k], median)
        gap = [i for i, label in enumerate(books.segments.labels) if label[0] == "gap"]
        rows = np.isin(books.segments.label, gap)
        out.add("recovery_gap", int((books.segments.end - books.segments.start)[rows].sum()))
    return out


def _all_windows(books: AttemptBooks) -> Windows:
    if books.windows is None:
        msg = f"the books of attempt {books.summary.attempt!r} went on from a seam: book it as a whole"
        raise ValueError(msg)
    return books.windows


def _expanded(w: Windows) -> Windows:
    """The same pieces with chains of windows taken apart again, one window a piece."""
    chains = np.flatnonzero(w.count > 1)
    if not len(chains):
        return w
    piece, window = [np.flatnonzero(w.count <= 1)], [w.window[w.count <= 1]]
    for row in chains.tolist():
        first, last = int(w.window[row]), int(w.window[row] + w.count[row])
        low = first + int(np.searchsorted(w.steps.end[first:last], w.start[row], side="right"))
        high = first + int(np.searchsorted(w.steps.start[first:last], w.end[row], side="left"))
        piece.append(np.full(high - low, row, dtype=np.int64))
        window.append(np.arange(low, high, dtype=np.int64))
    pieces, windows = np.concatenate(piece), np.concatenate(window)
    in_window = windows >= 0
    start, end = w.start[pieces], w.end[pieces]
    start[in_window] = np.maximum(start[in_window], w.steps.start[windows[in_window]])
    end[in_window] = np.minimum(end[in_window], w.steps.end[windows[in_window]])
    order = np.argsort(start, kind="stable")
    return replace(
        w,
        start=start[order],
        end=end[order],
        window=windows[order],
        count=np.minimum(w.count[pieces][order], 1),
        phase=w.phase[pieces][order],
        heading=w.heading[pieces][order],
    )


def _positions(windows: Windows, *, sampled: bool) -> Position:
    where = windows.where
    return (where.from_, where.to) if sampled else (where.low, where.high)


def _later(
    windows: Sequence[Windows], positions: Sequence[Position]
) -> tuple[list[Fraction | None], list[Fraction]]:
    """For each attempt: the lowest place at which a later one began, and how far later ones have come."""
    borders: list[Fraction | None] = []
    reached: list[Fraction] = []
    border: Fraction | None = None
    far = Fraction(0)
    for w, (low, high) in zip(reversed(windows), reversed(positions), strict=True):
        borders.append(border)
        reached.append(far)
        if len(low):
            begun = Fraction(int(low[np.argmin(w.steps.start)]), w.where.scale)
            border = begun if border is None else min(border, begun)
            far = max(far, Fraction(int(high.max()), w.where.scale))
    return borders[::-1], reached[::-1]


def _net(windows: Windows) -> Ints:
    """Net ns of each window on the job's timeline."""
    net = np.zeros(len(windows.steps), dtype=np.int64)
    rows = np.flatnonzero(windows.window >= 0)
    np.add.at(net, windows.window[rows], (windows.end - windows.start)[rows])
    return net


def _median_step(windows: Sequence[Windows]) -> int:
    """The job's median step time (ns), the lower one, each window counting its steps."""
    times, counts = [], []
    for w in windows:
        net = _net(w)
        count = np.maximum((w.where.high - w.where.low) // w.where.scale, 1)
        seen = net > 0
        times.append(net[seen] // count[seen])
        counts.append(count[seen])
    all_times = np.concatenate(times) if times else np.empty(0, dtype=np.int64)
    if not len(all_times):
        return 0
    order = np.argsort(all_times)
    reach = np.cumsum(np.concatenate(counts)[order].astype(np.float64))
    return int(all_times[order[np.searchsorted(reach, reach[-1] / 2)]])


def _attempt(
    out: Goodput,
    books: AttemptBooks,
    w: Windows,
    position: Position,
    border: Fraction | None,
    reached: Fraction,
    median: int,
) -> None:
    length = w.end - w.start
    rows = np.flatnonzero(w.window >= 0)
    lost_since = None
    if len(rows):
        lost = _lost(w, position, border)
        _steps(out, w, rows, lost, position, reached, median)
        hit = np.flatnonzero(lost[w.window[rows]] > 0)
        lost_since = int(w.start[rows[hit[0]]]) if len(hit) else None
    completed = int(w.end[rows].max()) if len(rows) else None
    over = not books.summary.live and (border is not None or books.summary.outcome != "completed")
    for row in np.flatnonzero(w.window < 0).tolist():
        out.add(_bucket(w, row, lost_since, completed, over=over), int(length[row]))


def _lost(w: Windows, position: Position, border: Fraction | None) -> Ints:
    """How much of each window was lost, in its own units: what later windows began again at or below."""
    low, high = position
    again = np.full(len(low), np.iinfo(np.int64).max)
    for first, last in _rank_blocks(w.steps.rank):
        later = np.minimum.accumulate(low[first:last][::-1])[::-1]
        again[first : last - 1] = later[1:]
    if border is not None:
        again = np.minimum(again, int(border * w.where.scale))
    lost: Ints = np.maximum(high - np.maximum(again, low), 0)
    return lost


def _rank_blocks(rank: Ints) -> list[tuple[int, int]]:
    borders = np.flatnonzero(rank[1:] != rank[:-1]) + 1
    edges = [0, *borders.tolist(), len(rank)]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def _steps(
    out: Goodput,
    w: Windows,
    rows: Ints,
    lost: Ints,
    position: Position,
    reached: Fraction,
    median: int,
) -> None:
    """Step time: the first step's excess, then the part that was lost, and what survived."""
    net = _net(w)
    low, high = position
    begun = int(w.window[rows[0]])
    same = (w.steps.first == w.steps.first[begun]) & (w.steps.last == w.steps.last[begun])
    leading = np.flatnonzero(same & (w.steps.start < (w.first.end or 0)))
    first_net = int(net[leading].sum())
    count = max((int(w.where.high[begun]) - int(w.where.low[begun])) // w.where.scale, 1)
    excess = max(first_net - count * median, 0)
    out.add("startup", excess)
    if excess:
        net[leading] = 0
        net[begun] = first_net - excess
    whole = high - low
    gone = lost >= whole
    out.add("repeated_work", int(net[gone].sum()))
    kept = int(net[~gone].sum())
    for row in np.flatnonzero(~gone & (lost > 0)).tolist():
        part = int(net[row]) * int(lost[row]) // int(whole[row])
        out.add("repeated_work", part)
        kept -= part
    out.add("productive", kept)
    ahead = np.flatnonzero((lost > 0) & (high > int(reached * w.where.scale)))
    out.lost_progress += int(net[ahead].sum())


def _bucket(
    w: Windows,
    row: int,
    lost_since: int | None,
    completed: int | None,
    *,
    over: bool,
) -> str:
    """The bucket of a piece of time outside steps."""
    start = int(w.start[row])
    heading = w.headings[int(w.heading[row])]
    flying = w.in_flight_from
    if over and flying is not None and start >= flying:
        return "recovery_gap"
    if heading in TAIL_HEADINGS:
        tail = completed if completed is not None else w.reported_until
        if over and start >= tail:
            return "recovery_gap"
        if w.first.start is None or start < w.first.start:
            return "startup"
        return "recovery_gap" if heading == "stall" else "other"
    if lost_since is not None and completed is not None and lost_since <= start < completed:
        return "repeated_work"
    badput = w.badput[int(w.phase[row])]
    bucket = _BUCKET_OF_BADPUT.get(badput or "", "other")
    return "startup" if heading == "startup" and bucket in ("other", "recovery_gap") else bucket
