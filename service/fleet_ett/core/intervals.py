"""A set of half-open integer intervals: the coverage of a job's training data.

A union of intervals and not a maximum, so that one poisoned counter does not make all later honest
steps look repeated (accounting.md, "coverage").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

EMPTY: Ints = np.empty(0, dtype=np.int64)


class IntervalSet:
    """Disjoint, sorted, non-touching intervals [starts[i], ends[i]). Immutable."""

    __slots__ = ("_below", "ends", "starts")

    def __init__(self, starts: Ints = EMPTY, ends: Ints = EMPTY) -> None:
        self.starts = starts
        self.ends = ends
        self._below: Ints | None = None

    @classmethod
    def of(cls, lows: Ints, highs: Ints) -> IntervalSet:
        """The union of any intervals [lows[i], highs[i]); empty ones are dropped."""
        if len(lows) and bool((lows[1:] == highs[:-1]).all()) and bool((highs >= lows).all()):
            lows, highs = (
                lows[:1],
                highs[-1:],
            )  # windows that follow each other, the usual case
        kept = highs > lows
        if not kept.all():
            lows, highs = lows[kept], highs[kept]
        if not len(lows):
            return cls()
        if len(lows) > 1 and not (lows[1:] >= lows[:-1]).all():
            order = np.argsort(lows, kind="stable")
            lows, highs = lows[order], highs[order]
        reach = np.maximum.accumulate(highs)
        breaks = np.flatnonzero(lows[1:] > reach[:-1])
        first = np.concatenate(([0], breaks + 1))
        last = np.concatenate((breaks, [len(lows) - 1]))
        return cls(lows[first], reach[last])

    def __or__(self, other: IntervalSet) -> IntervalSet:
        """The union of two sets."""
        if not len(self.starts):
            return other
        if not len(other.starts):
            return self
        return IntervalSet.of(
            np.concatenate((self.starts, other.starts)),
            np.concatenate((self.ends, other.ends)),
        )

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IntervalSet)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.ends, other.ends)
        )

    __hash__ = None  # type: ignore[assignment]

    def members(self) -> list[int]:
        """Every integer in the set: for small sets."""
        return [one for low, high in self.to_json() for one in range(low, high)]

    def size(self) -> int:
        """How much the set measures in all."""
        return int((self.ends - self.starts).sum())

    def covered(self, lows: Ints, highs: Ints) -> Ints:
        """How much of each [lows[i], highs[i]) lies in the set. Shape as the inputs."""
        out = np.zeros(len(lows), dtype=np.int64)
        if len(self.starts):  # mostly new data lies beyond all of the set: look only at what can meet it
            near = np.flatnonzero((lows < self.ends[-1]) & (highs > self.starts[0]))
            out[near] = self._measure_below(highs[near]) - self._measure_below(lows[near])
        return out

    def _measure_below(self, points: Ints) -> Ints:
        if self._below is None:
            self._below = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        at = np.searchsorted(self.starts, points, side="right")
        last_end = self.ends[np.maximum(at - 1, 0)]
        beyond = np.where(at > 0, np.maximum(last_end - points, 0), 0)
        return self._below[at] - beyond

    def within(self, low: int, high: int) -> list[tuple[int, int]]:
        """The parts of the set inside [low, high), in order, as Python integers."""
        first = int(np.searchsorted(self.ends, low, side="right"))
        last = int(np.searchsorted(self.starts, high, side="left"))
        return [(max(int(self.starts[i]), low), min(int(self.ends[i]), high)) for i in range(first, last)]

    def scaled(self, factor: int) -> IntervalSet:
        """The set with every bound multiplied by `factor` > 0."""
        return self if factor == 1 else IntervalSet(self.starts * factor, self.ends * factor)

    def to_json(self) -> list[list[int]]:
        """[[start, end], ...]."""
        return [[int(a), int(b)] for a, b in zip(self.starts, self.ends, strict=True)]

    @classmethod
    def from_json(cls, pairs: Sequence[Sequence[int]]) -> IntervalSet:
        """The set that `to_json` wrote."""
        if not pairs:
            return cls()
        table = np.array(pairs, dtype=np.int64)
        return cls(table[:, 0].copy(), table[:, 1].copy())
