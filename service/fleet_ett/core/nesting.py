"""From what overlaps to what each rank does at each instant: disjoint tiles.

The innermost span wins: a phase before a step window, then the later start, the shorter, taxonomy order
(accounting.md, section 11). Only what touches something else goes through the sweep. A window's
`data_wait` is cut out of its net time, from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core import cover
from fleet_ett.core.taxonomy import WAIT
from fleet_ett.core.tiles import Tiles, merged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.policy import Policy
    from fleet_ett.core.tiles import Names

    Ints = NDArray[np.int64]


def flatten(items: Tiles, wait: Ints | None, names: Names, policy: Policy) -> Tiles:
    """Disjoint tiles, sorted by (rank, start), from items sorted so; `wait` (ns) of each window cut out."""
    return _waits(_innermost(items, names, policy), wait, names)


def _innermost(items: Tiles, names: Names, policy: Policy) -> Tiles:
    touching = overlapping(items.rank, items.start, items.end)
    if touching is None:
        return items
    swept = _sweep(items.take(np.flatnonzero(touching)), names, policy)
    return merged(items.take(np.flatnonzero(~touching)), swept)


def overlapping(rank: Ints, start: Ints, end: Ints) -> NDArray[np.bool_] | None:
    """Which intervals, sorted by (rank, start), overlap another of their rank; None where none does."""
    touching = (rank[1:] == rank[:-1]) & (start[1:] < end[:-1])
    if not touching.any():
        return None
    out = np.zeros(len(rank), dtype=bool)
    for one in np.unique(rank[1:][touching]):
        low, high = np.searchsorted(rank, [one, one + 1])
        reach = np.maximum.accumulate(end[low:high])
        within = start[low + 1 : high] < reach[:-1]
        out[low + 1 : high] |= within
        out[low : high - 1] |= within
    return out


def _sweep(items: Tiles, names: Names, policy: Policy) -> Tiles:
    n = len(items.rank)
    place = {name: i for i, name in enumerate(sorted(names.names))}
    sequence = np.array([policy.taxonomy.order(name) * 10_000 + place[name] for name in names.names])
    is_step = (items.window >= 0) | items.in_flight
    inner_first = np.lexsort(
        (items.window, items.node, items.key, sequence[items.phase], items.end, -items.start, is_step)
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


def _waits(tiles: Tiles, wait: Ints | None, names: Names) -> Tiles:
    """Cut each window's `data_wait` out of the beginning of its net time."""
    if wait is None:
        return tiles
    rows = np.flatnonzero(tiles.window >= 0)
    rows = rows[np.argsort(tiles.window[rows], kind="stable")]
    window = tiles.window[rows]
    length = tiles.end[rows] - tiles.start[rows]
    before = np.cumsum(length) - length
    opening = np.ones(len(rows), dtype=bool)
    opening[1:] = window[1:] != window[:-1]
    before = before - np.repeat(before[opening], np.diff(np.append(np.flatnonzero(opening), len(rows))))
    waited = np.clip(np.maximum(wait[window], 0) - before, 0, length)
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
