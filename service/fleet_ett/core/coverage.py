"""What a job has trained on so far, and how much of a step window was trained on before.

Coverage is kept in samples and in steps. A window with samples is judged by samples, and by steps
against what earlier windows without samples covered; a window without samples by steps alone
(accounting.md, section 4). Steps are scaled so that micro-batches and optimizer steps share one axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from fleet_ett.core.intervals import IntervalSet
from fleet_ett.core.steps import constant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fleet_ett.core.steps import Steps

    Ints = NDArray[np.int64]

_AXIS_END = 2**62


@dataclass(frozen=True, slots=True)
class Coverage:
    """The cursor intervals that a job has trained on, in any attempt.

    `samples`: by samples. `counted`: steps of windows that had samples; `uncounted`: steps of windows
    that had none; both on an axis of `scale` units an optimizer step. `unit`: whether the windows so far
    named their unit (None: no windows yet).
    """

    samples: IntervalSet = field(default_factory=IntervalSet)
    counted: IntervalSet = field(default_factory=IntervalSet)
    uncounted: IntervalSet = field(default_factory=IntervalSet)
    scale: int = 1
    unit: bool | None = None

    def rescaled(self, scale: int) -> Coverage:
        """The same coverage on an axis of `scale` units a step, a multiple of the present one."""
        if scale == self.scale:
            return self
        factor = scale // self.scale
        return Coverage(
            self.samples,
            self.counted.scaled(factor),
            self.uncounted.scaled(factor),
            scale,
            self.unit,
        )

    def steps_end(self) -> int | None:
        """The end of the covered steps on the scaled axis."""
        ends = [int(s.ends[-1]) for s in (self.counted, self.uncounted) if s]
        return max(ends) if ends else None

    def steps(self) -> IntervalSet:
        """All covered steps, with and without samples."""
        return self.counted | self.uncounted

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        sets = {name: getattr(self, name).to_json() for name in ("samples", "counted", "uncounted")}
        return {**sets, "scale": self.scale, "unit": self.unit}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Coverage:
        """The coverage that `to_json` wrote."""
        samples, counted, uncounted = (
            IntervalSet.from_json(data[name]) for name in ("samples", "counted", "uncounted")
        )
        return cls(samples, counted, uncounted, data["scale"], data["unit"])


@dataclass(slots=True)
class Ranges:
    """Each window's place on both axes: steps [low, high) scaled, samples [from_, to) where known."""

    low: Ints
    high: Ints
    from_: Ints
    to: Ints
    sampled: NDArray[np.bool_]
    scale: int
    unit: bool | None
    unit_unclear: bool  # some window's unit cannot be told, or differs from what came before

    def add_to(self, coverage: Coverage, rows: Ints | slice = slice(None)) -> Coverage:
        """The coverage with those windows added."""
        sampled = self.sampled[rows]
        low, high = self.low[rows], self.high[rows]
        samples, counted, uncounted = (
            coverage.samples,
            coverage.counted,
            coverage.uncounted,
        )
        if sampled.any():
            samples = samples | IntervalSet.of(self.from_[rows][sampled], self.to[rows][sampled])
            counted = counted | IntervalSet.of(low[sampled], high[sampled])
        if not sampled.all():
            uncounted = uncounted | IntervalSet.of(low[~sampled], high[~sampled])
        unit = self.unit if self.unit is not None else coverage.unit
        return Coverage(samples, counted, uncounted, coverage.scale, unit)


def ranges(steps: Steps, before: Coverage) -> Ranges:
    """The windows on the axes of the coverage; the scale grows where micro-batches need it."""
    n = len(steps)
    scale = before.scale
    unclear = False
    unit: bool | None = None
    if n:
        unit = steps.per is not None
        unclear = (
            before.unit is not None
            and before.unit != unit
            and (before.unit or (steps.per is not None and bool((steps.per != 1).any())))
        )
    if steps.per is None:
        low, high = steps.first, steps.last + 1
        if scale > 1:
            low, high = _scaled(low, scale), _scaled(high, scale)
    else:
        unclear |= bool((steps.per == 0).any())
        divisors = {int(p) for p in np.unique(steps.per) if p > 1}
        wanted = lcm(scale, *divisors)
        if wanted < _AXIS_END >> 40:
            scale = wanted
        else:
            unclear = True
        low, high = _scaled(steps.first, scale), _scaled(steps.last + 1, scale)
        for divisor in divisors:
            if scale % divisor == 0:
                rows = np.flatnonzero(steps.per == divisor)
                low[rows], high[rows] = _micro(steps.first[rows], steps.last[rows], divisor, scale)
    none = constant(-1, n)
    from_ = none if steps.cursor_start is None else steps.cursor_start
    to = none if steps.cursor_end is None else steps.cursor_end
    sampled = (from_ >= 0) & (to > from_) if steps.cursor_end is not None else np.zeros(n, dtype=bool)
    return Ranges(low, high, from_, to, sampled, scale, unit, unclear)


def _scaled(values: Ints, scale: int) -> Ints:
    return values if scale == 1 else np.minimum(values, _AXIS_END // scale) * scale


def _micro(first: Ints, last: Ints, divisor: int, scale: int) -> tuple[Ints, Ints]:
    """Micro-batches on the step axis.

    Counted from one (41..80 with 4 to a step are the steps 11..20), unless the first window begins on a
    multiple of the divisor (40..79 are the steps 10..19).
    """
    unit = scale // divisor
    from_zero = int(first[0]) % divisor == 0
    if from_zero:
        return _scaled(first, unit), _scaled(last + 1, unit)
    return _scaled(first - 1, unit) + scale, _scaled(last, unit) + scale


def covered(where: Ranges, before: Coverage, rows: slice) -> tuple[Ints, Ints]:
    """How much of each window was trained on before: (part, whole) in samples or in scaled steps."""
    low, high, sampled = where.low[rows], where.high[rows], where.sampled[rows]
    any_sampled = bool(sampled.any())
    part = (before.uncounted if any_sampled else before.steps()).covered(low, high)
    whole = high - low
    if any_sampled:
        alone = ~sampled
        part[alone] = before.steps().covered(low[alone], high[alone])
        by_steps = part
        mine = np.flatnonzero(sampled)
        from_, to = where.from_[rows][mine], where.to[rows][mine]
        by_samples = before.samples.covered(from_, to)
        takes = (by_samples > 0) | (by_steps[mine] == 0)
        clear = mine[takes & ((by_steps[mine] == 0) | (by_samples == to - from_))]
        pick = np.isin(mine, clear)
        part[clear], whole[clear] = by_samples[pick], (to - from_)[pick]
        for i in mine[~pick & takes]:  # partly by samples and partly by steps: their union
            pieces, size = pieces_of(where, before, (rows.start or 0) + int(i))
            part[i], whole[i] = _share(pieces, size)
    return part, whole


def _share(pieces: list[tuple[int, int]], size: int) -> tuple[int, int]:
    part = sum(high - low for low, high in pieces)
    shift = max(size.bit_length() - 62, 0)
    return part >> shift, size >> shift


def pieces_of(where: Ranges, before: Coverage, row: int) -> tuple[list[tuple[int, int]], int]:
    """The parts of one window that were trained on before: sorted [(low, high)] in 0..size, and size."""
    low, high = int(where.low[row]), int(where.high[row])
    if not where.sampled[row]:
        return [(a - low, b - low) for a, b in before.steps().within(low, high)], high - low
    from_, to = int(where.from_[row]), int(where.to[row])
    steps, samples = high - low, to - from_
    found = [((a - from_) * steps, (b - from_) * steps) for a, b in before.samples.within(from_, to)]
    found += [((a - low) * samples, (b - low) * samples) for a, b in before.uncounted.within(low, high)]
    merged: list[tuple[int, int]] = []
    for a, b in sorted(found):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return merged, steps * samples
