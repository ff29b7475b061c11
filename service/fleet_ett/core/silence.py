"""Time in which hardware was held and no rank said anything: a stall or unknown, by the heartbeats.

Silence while heartbeats go on is a stall from the last progress, up to the end of an attempt that failed
or, in any other, once it is longer than the hang threshold. No reports at all are unknown
(accounting.md, sections 3 and 11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.taxonomy import HANG, UNKNOWN
from fleet_ett.core.track import Track

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.facts import Facts
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.tiles import Bounds, Names

    Ints = NDArray[np.int64]


def fill(
    track: Track,
    facts: Facts,
    names: Names,
    bounds: Bounds,
    policy: Policy,
    *,
    failed: bool,
) -> Track:
    """The track made whole over [bounds.start, bounds.end).

    `failed`: the attempt ended without success, so that silence up to its end is a stall.
    """
    low = np.concatenate((np.array([bounds.start], dtype=np.int64), track.end))
    high = np.concatenate((track.start, np.array([bounds.end], dtype=np.int64)))
    holes = np.flatnonzero(high > low)
    if not len(holes):
        return track
    starts, ends = low[holes], high[holes]
    stalls: list[tuple[int, int, int]] = []
    at_end = failed & (ends == bounds.end)
    for i in np.flatnonzero((ends - starts > policy.hang_ns) | at_end).tolist():
        begin, end = int(starts[i]), int(ends[i])
        progressed = bool(len(track)) and begin >= int(track.end[0])
        last = int(np.searchsorted(facts.beat_at, end, side="right"))
        if progressed and last and int(facts.beat_at[last - 1]) > begin:
            alive = int(facts.beat_at[last - 1])
            stalls.append((i, begin, end if end - alive <= policy.heartbeat_ns else alive))
    hang, unknown = names.code(HANG), names.code(UNKNOWN)
    phase = np.full(len(holes), unknown, dtype=np.int64)
    extra: list[tuple[int, int]] = []
    for i, _, until in stalls:
        phase[i] = hang
        if until < ends[i]:
            extra.append((until, int(ends[i])))
            ends[i] = until
    rest = np.array(extra, dtype=np.int64).reshape(-1, 2)
    silent_start = np.concatenate((starts, rest[:, 0]))
    silent_end = np.concatenate((ends, rest[:, 1]))
    silent_phase = np.concatenate((phase, np.full(len(rest), unknown, dtype=np.int64)))
    none = np.full(len(silent_start), -1, dtype=np.int64)
    quiet = Track(
        silent_start,
        silent_end,
        silent_phase,
        none,
        none,
        none,
        none,
        np.zeros(len(none), dtype=bool),
    )
    quiet = quiet.take(np.argsort(silent_start))
    place = np.searchsorted(track.start, quiet.start)
    return Track(*(np.insert(getattr(track, c), place, getattr(quiet, c)) for c in Track.__slots__))
