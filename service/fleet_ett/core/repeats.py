"""Which step time is new data and which is replay: the windows of one attempt against the coverage.

A window that was trained on in part is split at the border in proportion to its net time. The same steps
on several ranks are one window and never replay; within an attempt only a rank's own earlier windows,
ended before, are what it repeats (accounting.md, sections 4 and 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.coverage import Coverage, Ranges, covered, pieces_of, ranges
from fleet_ett.core.past import NOTHING, TOO_FAR, Past, Stale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.facts import Facts
    from fleet_ett.core.steps import Steps
    from fleet_ett.core.track import Track

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

NEW, REPLAYED, SPLIT = 0, 1, 2


@dataclass(slots=True)
class Repeats:
    """The verdict on each step window: NEW, REPLAYED or SPLIT, and the job's coverage afterwards.

    `part` of `whole`: how much of each window was trained on before.
    `steps_productive`, `steps_replayed`: optimizer steps on new data and again; replayed is None where
    the step counter's unit changed and nobody can tell. `first_step`, `last_step` as reported.
    """

    verdict: Ints
    part: Ints
    whole: Ints
    where: Ranges
    before: dict[int, Coverage]  # for split windows: what had been covered when they began
    coverage: Coverage
    steps_productive: int
    steps_replayed: int | None
    samples_replayed: int
    first_step: int | None
    last_step: int | None


def judge(facts: Facts, steps: Steps, carried: Coverage, past: Past = NOTHING) -> Repeats:
    """Compare an attempt's windows with what the job had trained on before them.

    `past`: the attempt's windows before these. Raises `Stale` where these go back behind them, or differ in kind.
    """
    where = ranges(steps, carried)
    if len(past.table):
        _check_follows(steps, where, past)
    base = carried.rescaled(where.scale)
    n = len(steps)
    part, whole = covered(where, base, slice(0, n))
    before: dict[int, Coverage] = {}
    for rows, known in _own_repeats(steps, where, base):
        part[rows], whole[rows] = covered(where, known, rows)
        before.update(dict.fromkeys(range(rows.start, rows.stop), known))
    verdict = np.where(part <= 0, NEW, np.where(part >= whole, REPLAYED, SPLIT))
    split = np.flatnonzero(verdict == SPLIT)
    after = where.add_to(past.coverage if len(past.table) else base)
    record = _record_rank(steps, where, past)
    done = past.table.row(int(steps.rank[record.start])) if n else None
    productive, replayed = _count_steps(where, base, record, part, whole)
    if done is not None:
        replayed += done["again"]
        productive += done["total"] - done["again"] if past.sampled else done["fresh"]
    _flags(facts, steps, where, base, record, past)
    samples = _samples(where, record, part, whole)
    return Repeats(
        verdict,
        part,
        whole,
        where,
        {int(row): before.get(int(row), base) for row in split},
        after,
        productive // where.scale,
        None if where.unit_unclear else replayed // where.scale,
        samples if done is None else samples + done["samples"],
        None if not n else int(steps.first[record.start]) if done is None else done["first"],
        None if not n else max(int(steps.last[record].max()), -1 if done is None else done["last"]),
    )


def _check_follows(steps: Steps, where: Ranges, past: Past) -> None:
    """Raises `Stale` unless these windows go on where those of the past ended."""
    if not np.isin(past.table.rank, steps.rank).all():
        raise Stale
    alike = bool((where.sampled == past.sampled).all()) and where.unit == past.unit
    if not alike or where.unit_unclear or where.scale != 1 or int(steps.last.max()) >= TOO_FAR:
        raise Stale
    low = where.from_ if past.sampled else where.low
    if (low < past.table.reach_of(steps.rank)).any():
        raise Stale


def _own_repeats(steps: Steps, where: Ranges, base: Coverage) -> list[tuple[slice, Coverage]]:
    """Runs of windows that go back behind what their own rank had done: (rows, coverage before them)."""
    by_samples = bool(where.sampled.all())
    low, high = (where.from_, where.to) if by_samples else (where.low, where.high)
    back = (steps.rank[1:] == steps.rank[:-1]) & (low[1:] < high[:-1])
    out: list[tuple[slice, Coverage]] = []
    for rank in np.unique(steps.rank[1:][back]):
        begin, end = np.searchsorted(steps.rank, [rank, rank + 1])
        borders = begin + 1 + np.flatnonzero(back[begin : end - 1])
        known, added = base, int(begin)
        for first, last in zip(borders, [*borders[1:], end], strict=True):
            rows = slice(int(first), int(last))
            earlier = np.arange(added, first)
            if int(steps.end[earlier].max()) <= int(steps.start[first]):
                known, added = where.add_to(known, earlier), int(first)
                out.append((rows, known))
            else:  # windows that overlap in time repeat nothing of each other
                ended = earlier[steps.end[earlier] <= steps.start[first]]
                out.append((rows, where.add_to(known, ended)))
    return out


def _record_rank(steps: Steps, where: Ranges, past: Past) -> slice:
    """The rows of the rank that reported most steps, the lowest on a tie."""
    leading = steps.leading()
    if len(leading) < 2:
        return slice(0, len(steps))
    sums = np.add.reduceat((where.high - where.low).astype(np.float64), leading)
    if len(past.table):
        sums += past.table.total_of(steps.rank[leading])
    best = int(np.argmax(sums))
    return slice(int(leading[best]), len(steps) if best + 1 == len(leading) else int(leading[best + 1]))


def _count_steps(
    where: Ranges,
    base: Coverage,
    record: slice,
    part: Ints,
    whole: Ints,
) -> tuple[int, int]:
    """The steps of one rank on the axis of the coverage: on new data, and again."""
    again = portion(where.high[record] - where.low[record], part[record], whole[record])
    if where.sampled[record].any():
        return int((where.high[record] - where.low[record]).sum()) - again, again
    return where.add_to(base, record).steps().size() - base.steps().size(), again


def _samples(where: Ranges, record: slice, part: Ints, whole: Ints) -> int:
    rows = record.start + np.flatnonzero(where.sampled[record])
    return portion(where.to[rows] - where.from_[rows], part[rows], whole[rows])


def portion(size: Ints, part: Ints, whole: Ints) -> int:
    """sum(size * part / whole) in exact integers, rounded down once."""
    full = part >= whole
    some = np.flatnonzero(~full & (part > 0))
    return int(size[full].sum()) + sum(int(size[i]) * int(part[i]) // int(whole[i]) for i in some)


def _flags(facts: Facts, steps: Steps, where: Ranges, base: Coverage, record: slice, past: Past) -> None:
    if not len(steps):
        return
    done = past.table.row(int(steps.rank[record.start]))
    if where.unit_unclear:
        facts.flag("step_unit_changed")
    some, every = bool(where.sampled.any()), bool(where.sampled.all())
    if (some and (not every or base.uncounted)) or (not every and base.samples):
        facts.flag("no_samples", amount=int((~where.sampled).sum()) + past.unsampled)
    low, high = where.low[record], where.high[record]
    first, begun, loaded = int(steps.first[record.start]), int(low[0]), None
    jump = int((low[1:] - high[:-1]).max(initial=0))
    if done is None:
        loaded = facts.loaded_step(int(steps.start[record.start]))
    else:
        jump = max(jump, begun - done["tail"], done["jump"])
        first = begun = done["first"]
        loaded = done["loaded"] if done["loaded"] >= 0 else None
    reached = base.steps_end()
    if jump > 0:
        facts.flag("step_jump", amount=jump // where.scale)
    elif reached is not None and begun > reached:
        facts.flag("step_jump", amount=(begun - reached) // where.scale)
    if loaded is not None and not {first, begun // where.scale} & {loaded, loaded + 1}:
        facts.flag("checkpoint_step_mismatch", loaded=loaded, first=first)


def split(track: Track, repeats: Repeats, steps: Steps) -> tuple[Track, Bools]:
    """The track cut at the borders of split windows; with it, which pieces of step time are replay."""
    stepping = np.flatnonzero(track.window >= 0)
    if not len(stepping):
        return track, np.zeros(len(track), dtype=bool)
    partly = stepping[repeats.verdict[track.window[stepping]] == SPLIT]
    replayed: list[tuple[int, int]] = []
    for rows in _one_window(track, partly, steps):
        window = int(track.window[rows[0]])
        stretches = _borders(_step_time(track, stepping, _bounds(steps, window)), repeats, window)
        spans = [(int(track.start[row]), int(track.end[row])) for row in rows]
        both = ((max(a, low), min(b, high)) for a, b in spans for low, high in stretches)
        replayed += [(low, high) for low, high in both if high > low]
    cut = track.cut(moment for pair in replayed for moment in pair)
    replay = np.zeros(len(cut), dtype=bool)
    inside = np.flatnonzero(cut.window >= 0)
    replay[inside] = repeats.verdict[cut.window[inside]] == REPLAYED
    replay[np.isin(cut.start, [low for low, _ in replayed])] = True
    return cut, replay


def _one_window(track: Track, rows: Ints, steps: Steps) -> list[list[int]]:
    """Pieces of split windows grouped: the same steps at about the same time are one window on all ranks."""
    groups: list[tuple[int, list[int]]] = []
    current: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        window = int(track.window[row])
        key = (int(steps.first[window]), int(steps.last[window]))
        at = current.get(key)
        if at is not None and int(steps.start[window]) < groups[at][0]:
            groups[at] = (max(groups[at][0], int(steps.end[window])), [*groups[at][1], row])
        else:
            current[key] = len(groups)
            groups.append((int(steps.end[window]), [row]))
    return [members for _, members in groups]


def _bounds(steps: Steps, window: int) -> tuple[int, int]:
    """From when to when (ns) any rank was in the steps of a window."""
    start, end = steps.start[window], steps.end[window]
    same = (steps.first == steps.first[window]) & (steps.last == steps.last[window])
    same &= (steps.start < end) & (steps.end > start)
    return int(steps.start[same].min()), int(steps.end[same].max())


def _step_time(track: Track, stepping: Ints, bounds: tuple[int, int]) -> list[tuple[int, int]]:
    """The job's step time within bounds: what no wait and no span of any rank takes out of a window."""
    starts = np.maximum(track.start[stepping], bounds[0])
    ends = np.minimum(track.end[stepping], bounds[1])
    some = ends > starts
    return list(zip(starts[some].tolist(), ends[some].tolist(), strict=True))


def _borders(pieces: list[tuple[int, int]], repeats: Repeats, window: int) -> list[tuple[int, int]]:
    """The replayed stretches of a split window's net time, in ns; a border is rounded down."""
    net = sum(end - start for start, end in pieces)
    parts, size = pieces_of(repeats.where, repeats.before[window], window)
    out: list[tuple[int, int]] = []
    for low, high in parts:
        begin, end = net * low // size, net * high // size
        done = 0
        for start, stop in pieces:
            length = stop - start
            a, b = max(begin - done, 0), min(end - done, length)
            if b > a:
                out.append((start + a, start + b))
            done += length
    return out
