"""What each rank does when: its step windows and blocking phases inside the attempt, as tiles.

Open spans are closed here, steps in flight told apart, and what does not block (`overlapped` spans, phases
without hardware) is left out (accounting.md, sections 3 and 11).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fleet_ett.core.steps import constant
from fleet_ett.core.taxonomy import ABORTED, STEP, UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.chains import Chains
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


def merged(some: Tiles, others: Tiles) -> Tiles:
    """Two lots of tiles, each sorted by (rank, start), as one."""
    if not len(others.rank) or not len(some.rank):
        return some if len(some.rank) else others
    columns = [(getattr(some, name), getattr(others, name)) for name in Tiles.__slots__]
    if some.rank[0] == some.rank[-1] == others.rank[0] == others.rank[-1]:
        place = np.searchsorted(some.start, others.start)
        return Tiles(*(_inserted(place, a, b) for a, b in columns))
    both = Tiles(*(np.concatenate(pair) for pair in columns))
    return both.take(np.lexsort((both.start, both.rank)))


def _inserted(place: Ints, column: Any, more: Any) -> Any:
    """`more` inserted into a column; one that holds a single value stays without memory."""
    if column.strides == (0,) and bool((more == column[0]).all()):
        return np.broadcast_to(column[0], len(column) + len(more))
    return np.insert(column, place, more)


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


def rank_items(facts: Facts, chains: Chains, names: Names, bounds: Bounds, policy: Policy) -> Tiles:
    """All phases and chains of step windows inside the attempt; `window` is the row of the chain.

    Sorted by (rank, start) and still overlapping: `nesting.flatten` makes tiles of them. What reaches
    beyond the attempt is cut and flagged.
    """
    spans = _cut_spans(facts, names, bounds, policy)
    n = len(chains)
    windows = Tiles(
        chains.rank,
        chains.node,
        chains.start,
        chains.end,
        constant(names.code(STEP), n),
        np.arange(n, dtype=np.int64),
        constant(-1, n),
        np.broadcast_to(np.False_, n),
    )
    return merged(_filled(windows), _filled(spans.take(np.lexsort((spans.start, spans.rank)))))


def _filled(items: Tiles) -> Tiles:
    kept = items.end > items.start
    return items if kept.all() else items.take(np.flatnonzero(kept))


def cut_steps(facts: Facts, bounds: Bounds) -> Steps:
    """The step windows cut to the attempt."""
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
        lowest = int(np.lexsort((nodes, ranks))[0])
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
    beats = facts.beats.get(name, [])
    before = bisect_right(beats, bounds.end)
    last_beat = beats[before - 1] if before else None
    if last_beat is None or bounds.end - last_beat <= policy.heartbeat_ns:
        return bounds.end
    alive = max(last_beat, start, facts.last_word.get(name, 0))
    return alive if bounds.end - alive > policy.heartbeat_ns else bounds.end
