"""Step windows as columns: what a job reports most, carried through the core as numpy arrays.

`StepBatch` mirrors the wire's bulk form: constants once, columns for what varies. `Steps` is what the
sweep works on: all windows of one attempt, sorted by (rank, start), stamps corrected by the clock offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ett_collector.wire import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

STEP_LIMIT = 2**53  # step numbers beyond are poisoned counters: cut, so that sums of many stay in 64 bits
OPTIONAL = ("cursor_start", "cursor_end", "data_wait", "per_optimizer_step")


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Many `steps` events of one rank at once. Columns are int64 of one length; stamps in ns.

    Optional columns hold -1 where an event has no value. `unit` is one of the wire's or None.
    """

    job: str
    attempt: str
    rank: int
    node: str
    incarnation: str
    seq: Ints
    first: Ints
    last: Ints
    start: Ints
    end: Ints
    clock_offset_ns: int = 0
    unit: str | None = None
    cursor_start: Ints | None = None
    cursor_end: Ints | None = None
    data_wait: Ints | None = None
    per_optimizer_step: Ints | None = None

    def __len__(self) -> int:
        return len(self.seq)

    def events(self) -> Iterator[Event]:
        """The same as single events, for the rare paths that look at one event at a time."""
        for i in range(len(self.seq)):
            body = {"first": int(self.first[i]), "last": int(self.last[i])}
            for name in OPTIONAL:
                column = getattr(self, name)
                if column is not None and column[i] >= 0:
                    body[name] = int(column[i])
            yield Event(
                "steps",
                self.node,
                self.incarnation,
                int(self.seq[i]),
                self.clock_offset_ns,
                self.job,
                self.attempt,
                self.rank,
                int(self.start[i]),
                int(self.end[i]),
                body if self.unit is None else {**body, "unit": self.unit},
            )


@dataclass(slots=True)
class Steps:
    """The step windows of one attempt, sorted by (rank, start, end). Columns int64 of one length.

    `per` is optimizer steps' divisor: 1 for optimizer steps, p for micro-batches of which p make one,
    0 where the unit is not known; None when no event of the attempt names a unit.
    `cursor_start` and `cursor_end` are -1 where the event has no samples; None when none has.
    """

    rank: Ints
    node: Ints
    start: Ints
    end: Ints
    first: Ints
    last: Ints
    wait: Ints | None = None
    cursor_start: Ints | None = None
    cursor_end: Ints | None = None
    per: Ints | None = None

    def __len__(self) -> int:
        return len(self.rank)

    def leading(self) -> Ints:
        """The row of each rank's first window."""
        return np.flatnonzero(np.append(True, self.rank[1:] != self.rank[:-1])[: len(self)])

    def take(self, rows: Ints) -> Steps:
        """The windows of those row numbers."""

        def some(column: Ints | None) -> Ints | None:
            return None if column is None else column[rows]

        return Steps(
            self.rank[rows],
            self.node[rows],
            self.start[rows],
            self.end[rows],
            self.first[rows],
            self.last[rows],
            some(self.wait),
            some(self.cursor_start),
            some(self.cursor_end),
            some(self.per),
        )


def constant(value: int, n: int) -> Ints:
    """A read-only column of n equal values that takes no memory."""
    return np.ndarray(n, np.int64, np.int64(value), strides=(0,))  # a fifth of broadcast_to's time


def _per(unit: object, divisor: object) -> int:
    if unit == "optimizer_step":
        return 1
    if unit == "micro_batch" and type(divisor) is int and divisor > 0:
        return divisor
    return 0


def _column(parts: list[Ints | None], sizes: list[int]) -> Ints | None:
    """One column from several batches; -1 where a batch lacks it, None when all do."""
    if all(part is None for part in parts):
        return None
    first = parts[0]
    if first is not None and all(p is not None and p.strides == (0,) and p[0] == first[0] for p in parts):
        return constant(int(first[0]), sum(sizes))
    full = [
        np.full(n, -1, dtype=np.int64) if part is None else part for part, n in zip(parts, sizes, strict=True)
    ]
    return full[0] if len(full) == 1 else np.concatenate(full)


def _from_events(events: Sequence[Event], nodes: dict[str, int]) -> tuple[dict[str, Ints | None], int]:
    n = len(events)

    def optional(name: str) -> Ints | None:
        values = [event.body.get(name, -1) for event in events]
        return None if all(v == -1 for v in values) else np.array(values, dtype=np.int64)

    def integers(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)

    units = any("unit" in event.body for event in events)
    columns: dict[str, Ints | None] = {
        "rank": integers([event.rank or 0 for event in events]),
        "node": integers([nodes[event.node] for event in events]),
        "start": integers([(event.start or 0) - event.clock_offset_ns for event in events]),
        "end": integers([(event.end or 0) - event.clock_offset_ns for event in events]),
        "first": integers([event.body["first"] for event in events]),
        "last": integers([event.body["last"] for event in events]),
        "wait": optional("data_wait"),
        "cursor_start": optional("cursor_start"),
        "cursor_end": optional("cursor_end"),
        "per": integers(
            [_per(event.body.get("unit"), event.body.get("per_optimizer_step")) for event in events]
        )
        if units
        else None,
    }
    return columns, n


def _from_batch(batch: StepBatch, nodes: dict[str, int]) -> tuple[dict[str, Ints | None], int]:
    n = len(batch)
    offset = batch.clock_offset_ns
    per: Ints | None = None
    if batch.unit is not None:
        divisors = batch.per_optimizer_step
        if batch.unit == "optimizer_step":
            per = np.ones(n, dtype=np.int64)
        elif batch.unit == "micro_batch" and divisors is not None:
            per = np.maximum(divisors, 0)
        else:
            per = np.zeros(n, dtype=np.int64)
    columns: dict[str, Ints | None] = {
        "rank": constant(batch.rank, n),
        "node": constant(nodes[batch.node], n),
        "start": batch.start - offset if offset else batch.start,
        "end": batch.end - offset if offset else batch.end,
        "first": batch.first,
        "last": batch.last,
        "wait": batch.data_wait,
        "cursor_start": batch.cursor_start,
        "cursor_end": batch.cursor_end,
        "per": per,
    }
    return columns, n


def gather(events: Sequence[Event], batches: Sequence[StepBatch], nodes: dict[str, int]) -> Steps:
    """All windows of one attempt, sorted; `nodes` gives the code of each node's name.

    A window reported again with the same bounds and steps is one window (a duplicated step record is
    not a restart).
    """
    parts = [_from_batch(batch, nodes) for batch in batches]
    if events:
        parts.append(_from_events(events, nodes))
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return Steps(empty, empty, empty, empty, empty, empty)
    sizes = [n for _, n in parts]
    columns = {name: _column([told[name] for told, _ in parts], sizes) for name in Steps.__slots__}
    steps = Steps(**columns)  # type: ignore[arg-type] # the first six are never None
    if steps.per is not None and (steps.per < 0).any():
        steps.per = np.maximum(steps.per, 0)
    return _ordered(steps)


def _ordered(steps: Steps) -> Steps:
    rank, start = steps.rank, steps.start
    same = rank[1:] == rank[:-1]
    ascending = (rank[1:] > rank[:-1]) | (same & (start[1:] > start[:-1]))
    if not ascending.all():
        tie = [c for c in (steps.wait, steps.cursor_end, steps.cursor_start, steps.per) if c is not None]
        order = np.lexsort((*tie, steps.node, steps.last, steps.first, steps.end, start, rank))
        steps = steps.take(order)
        twin = np.ones(len(steps), dtype=bool)
        twin[:1] = False
        for column in (steps.rank, steps.start, steps.end, steps.first, steps.last):
            twin[1:] &= column[1:] == column[:-1]
        if twin.any():
            steps = steps.take(np.flatnonzero(~twin))
    if len(steps) and int(steps.last.max()) > STEP_LIMIT:
        steps.first = np.minimum(steps.first, STEP_LIMIT)
        steps.last = np.minimum(steps.last, STEP_LIMIT)
    return steps
