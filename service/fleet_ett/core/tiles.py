"""From spans and windows to what each rank does at each instant: disjoint tiles of one rank.

The innermost span wins: a phase before a step window, then the later start, the shorter, taxonomy order
(accounting.md, section 11); `overlapped` spans never block. A window's `data_wait` is cut out of its net
time, from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core import cover
from fleet_ett.core.taxonomy import ABORTED, STEP, UNKNOWN, WAIT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.facts import Facts
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.steps import Steps

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


@dataclass(slots=True)
class Tiles:
    """Disjoint pieces of each rank's time, sorted by (rank, start). Columns of one length, ns.

    `phase` is a code into `names`; `window` the row of the step window or -1; `key` a work key's code
    or -1; `in_flight` a step that no `steps` event has proved.
    """

    rank: Ints
    node: Ints
    start: Ints
    end: Ints
    phase: Ints
    window: Ints
    key: Ints
    in_flight: Bools

    def take(self, rows: Ints) -> Tiles:
        """The pieces of those row numbers."""
        return Tiles(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(slots=True)
class Bounds:
    """What an attempt's time reaches over: [start, end), whether it is still live."""

    start: int
    end: int
    live: bool


class Names:
    """Interned phase names of one attempt: those reported and those the core books itself."""

    def __init__(self, reported: list[str]) -> None:
        self.names = list(reported)
        self._code = {name: i for i, name in enumerate(reported)}

    def code(self, name: str) -> int:
        """The code of a name, a new one if need be."""
        if name not in self._code:
            self._code[name] = len(self.names)
            self.names.append(name)
        return self._code[name]


def rank_tiles(facts: Facts, names: Names, bounds: Bounds, policy: Policy) -> tuple[Tiles, Steps]:
    """The tiles of all ranks inside the attempt, and its step windows cut to it (same rows).

    What reaches beyond the attempt is cut and flagged.
    """
    steps = _cut_steps(facts, bounds)
    spans = _cut_spans(facts, names, bounds, policy)
    n = len(steps)
    items = Tiles(
        np.concatenate((steps.rank, spans.rank)),
        np.concatenate((steps.node, spans.node)),
        np.concatenate((steps.start, spans.start)),
        np.concatenate((steps.end, spans.end)),
        np.concatenate((np.full(n, names.code(STEP), dtype=np.int64), spans.phase)),
        np.concatenate((np.arange(n, dtype=np.int64), spans.window)),
        np.concatenate((np.full(n, -1, dtype=np.int64), spans.key)),
        np.concatenate((np.zeros(n, dtype=bool), spans.in_flight)),
    )
    filled = items.end > items.start
    if not filled.all():
        items = items.take(np.flatnonzero(filled))
    return _waits(_flatten(items, names, policy), steps, names), steps


def _cut_steps(facts: Facts, bounds: Bounds) -> Steps:
    steps = facts.steps
    if not len(steps):
        return steps
    if int(steps.start.min()) >= bounds.start and int(steps.end.max()) <= bounds.end:
        return steps
    out = steps.take(np.arange(len(steps)))
    out.start = np.clip(steps.start, bounds.start, bounds.end)
    out.end = np.clip(steps.end, bounds.start, bounds.end)
    beyond = np.flatnonzero((out.start != steps.start) | (out.end != steps.end))
    _flag_cut(facts, steps.rank[beyond], steps.node[beyond], bounds)
    return out


def _flag_cut(facts: Facts, ranks: Ints, nodes: Ints, bounds: Bounds) -> None:
    if len(ranks) and not bounds.live:
        lowest = int(np.argmin(ranks))
        node = facts.node_names[int(nodes[lowest])]
        facts.flag("clipped", rank=int(ranks[lowest]), node=node, amount=len(ranks))


def _cut_spans(facts: Facts, names: Names, bounds: Bounds, policy: Policy) -> Tiles:
    """Phases as items: open ones closed, steps in flight told apart, overlapped ones left out."""
    spans = facts.spans
    taxonomy = policy.taxonomy
    outside = np.array([taxonomy.phase(name).kind == "external" for name in facts.phase_names] or [False])
    blocking = ~spans.overlapped & ~outside[spans.phase] if len(spans) else spans.overlapped
    step = names.code(STEP)
    in_flight = spans.phase == step
    if in_flight.any():
        blocking &= ~(in_flight & _proved(facts, in_flight))
    rows = np.flatnonzero(blocking)
    start, end = spans.start[rows], spans.end[rows].copy()
    opened = np.flatnonzero(end < 0)
    for i in opened:
        end[i] = _closing(facts, int(spans.node[rows[i]]), int(start[i]), bounds, policy)
    cut_start, cut_end = (
        np.clip(start, bounds.start, bounds.end),
        np.clip(end, bounds.start, bounds.end),
    )
    beyond = (cut_start != start) | (cut_end != end)
    _flag_cut(facts, spans.rank[rows[beyond]], spans.node[rows[beyond]], bounds)
    if not bounds.live:
        for i in opened:
            if not in_flight[rows[i]]:
                row = rows[i]
                node = facts.node_names[int(spans.node[row])]
                facts.flag(
                    "open_span_closed",
                    rank=int(spans.rank[row]),
                    node=node,
                    amount=int(cut_end[i] - cut_start[i]),
                )
    phase = spans.phase[rows].copy()
    flying = in_flight[rows]
    if flying.any():
        cut_off = names.code(ABORTED)
        phase[flying] = np.where(
            spans.aborted[rows][flying],
            cut_off,
            names.code(UNKNOWN if bounds.live else ABORTED),
        )
    lone = np.full(len(rows), -1, dtype=np.int64)
    return Tiles(
        spans.rank[rows],
        spans.node[rows],
        cut_start,
        cut_end,
        phase,
        lone,
        spans.key[rows],
        flying,
    )


def _proved(facts: Facts, in_flight: Bools) -> Bools:
    """Which steps in flight a `steps` event of the same rank covers: one that ends after their start."""
    steps, spans = facts.steps, facts.spans
    proved = np.zeros(len(spans), dtype=bool)
    ranks, position = np.unique(steps.rank, return_inverse=True)
    reach = np.full(len(ranks), np.iinfo(np.int64).min)
    np.maximum.at(reach, position, steps.end)
    for i in np.flatnonzero(in_flight):
        where = int(np.searchsorted(ranks, spans.rank[i]))
        known = where < len(ranks) and ranks[where] == spans.rank[i]
        proved[i] = known and int(reach[where]) > int(spans.start[i])
    return proved


def _closing(facts: Facts, node: int, start: int, bounds: Bounds, policy: Policy) -> int:
    """When an open span ends: with its attempt, or at its node's last sign of life if much older."""
    name = facts.node_names[node]
    last_beat = facts.last_beat.get(name)
    if last_beat is None or bounds.end - last_beat <= policy.heartbeat_ns:
        return bounds.end
    alive = max(last_beat, start, facts.last_seen.get(name, 0))
    return alive if bounds.end - alive > policy.heartbeat_ns else bounds.end


def _flatten(items: Tiles, names: Names, policy: Policy) -> Tiles:
    """Of overlapping items of one rank the innermost at each instant."""
    order = np.lexsort((items.start, items.rank)) if not _is_sorted(items) else None
    if order is not None:
        items = items.take(order)
    if not len(items.rank):
        return items
    touching = (items.rank[1:] == items.rank[:-1]) & (items.start[1:] < items.end[:-1])
    if not touching.any():
        return items
    n = len(items.rank)
    place = {name: i for i, name in enumerate(sorted(names.names))}
    sequence = np.array([policy.taxonomy.order(name) * 10_000 + place[name] for name in names.names])
    is_step = (items.window >= 0) | items.in_flight
    inner_first = np.lexsort(
        (
            items.window,
            items.node,
            items.key,
            sequence[items.phase],
            items.end,
            -items.start,
            is_step,
        )
    )
    priority = np.empty(n, dtype=np.int64)
    priority[inner_first] = np.arange(n)
    # each rank on a stretch of its own of one axis of positions
    ranks = np.concatenate((items.rank, items.rank))
    times = np.concatenate((items.start, items.end))
    by_time = np.lexsort((times, ranks))
    sorted_ranks, sorted_times = ranks[by_time], times[by_time]
    fresh = np.ones(2 * n, dtype=bool)
    fresh[1:] = (sorted_ranks[1:] != sorted_ranks[:-1]) | (sorted_times[1:] != sorted_times[:-1])
    position = np.empty(2 * n, dtype=np.int64)
    position[by_time] = np.cumsum(fresh) - 1
    moments = sorted_times[fresh]
    low, high, winner = cover.runs(*cover.smallest(position[:n], position[n:], priority))
    flat = items.take(inner_first[winner])
    flat.start, flat.end = moments[low], moments[high]
    return flat


def _is_sorted(items: Tiles) -> bool:
    same = items.rank[1:] == items.rank[:-1]
    return bool(((items.rank[1:] > items.rank[:-1]) | (same & (items.start[1:] >= items.start[:-1]))).all())


def _waits(tiles: Tiles, steps: Steps, names: Names) -> Tiles:
    """Cut each window's `data_wait` out of the beginning of its net time."""
    if steps.wait is None:
        return tiles
    rows = np.flatnonzero(tiles.window >= 0)
    rows = rows[np.argsort(tiles.window[rows], kind="stable")]
    window = tiles.window[rows]
    length = tiles.end[rows] - tiles.start[rows]
    before = np.cumsum(length) - length
    opening = np.ones(len(rows), dtype=bool)
    opening[1:] = window[1:] != window[:-1]
    before = before - np.repeat(before[opening], np.diff(np.append(np.flatnonzero(opening), len(rows))))
    waited = np.clip(np.maximum(steps.wait[window], 0) - before, 0, length)
    some = np.flatnonzero(waited > 0)
    if not len(some):
        return tiles
    cut = rows[some]
    waits = tiles.take(cut)
    waits.end = waits.start + waited[some]
    waits.phase = np.full(len(cut), names.code(WAIT), dtype=np.int64)
    waits.window = np.full(len(cut), -1, dtype=np.int64)
    rest = tiles.take(np.arange(len(tiles.rank)))
    rest.start = rest.start.copy()
    rest.start[cut] = waits.end
    joined = Tiles(*(np.concatenate((getattr(rest, c), getattr(waits, c))) for c in Tiles.__slots__))
    kept = np.flatnonzero(joined.end > joined.start)
    return joined.take(kept[np.lexsort((joined.start[kept], joined.rank[kept]))])
