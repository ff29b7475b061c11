"""From a labelled track to the booked segments: labels, the gap after, what is settled, and the law.

The law of conservation is checked here at run time: an attempt's segments tile its time and its gap to the
nanosecond, or `Unbalanced` names the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.segments import Segments
from fleet_ett.core.steps import constant
from fleet_ett.core.taxonomy import GAP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from fleet_ett.core.facts import Facts
    from fleet_ett.core.link import Link
    from fleet_ett.core.places import Labels
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.segments import Label
    from fleet_ett.core.tiles import Bounds, Names, Tiles
    from fleet_ett.core.track import Track

    Ints = NDArray[np.int64]


class Unbalanced(AssertionError):  # noqa: N818 - the books are unbalanced
    """The segments of an attempt do not tile its time: a bug, named with its job, never a figure."""


def segments(  # noqa: PLR0913, PLR0917 - a labelled track and all that turns it into books
    told: Facts,
    track: Track,
    labels: Labels,
    names: Names,
    bounds: Bounds,
    link: Link,
    until: int,
    policy: Policy,
) -> Segments:
    """The segments of an attempt and of the gap after it; `until` (ns): settled until then.

    Raises `Unbalanced` when they do not tile the attempt to the nanosecond.
    """
    rows, label = _labels(track, labels, names, link, policy)
    gap = _gap(bounds, link, policy)
    if gap:
        rows.append(("gap", GAP, policy.taxonomy.phase(GAP).owner, False))
    none = constant(-1, len(gap))

    def with_gap(column: Ints, of_gap: Ints) -> Ints:
        return np.concatenate((column, of_gap)) if gap else column

    held = 0 if link.next_released else told.gpus
    out = Segments(
        start=with_gap(track.start, np.array([low for low, _ in gap], dtype=np.int64)),
        end=with_gap(track.end, np.array([high for _, high in gap], dtype=np.int64)),
        label=with_gap(label, constant(len(rows) - 1, len(gap))),
        rank=with_gap(track.rank, none),
        node=with_gap(track.node, none),
        key=with_gap(track.key, none),
        gpus=with_gap(constant(told.gpus, len(track)), constant(held, len(gap))),
        ahead=np.concatenate((track.ahead, np.zeros(len(gap), dtype=bool))),
        labels=rows,
        nodes=told.node_names,
        keys=told.work_keys,
        settled_until=until,
    ).joined()
    _check(told, out, bounds, link, policy)
    return out


def _labels(
    track: Track, labels: Labels, names: Names, link: Link, policy: Policy
) -> tuple[list[Label], Ints]:
    """The distinct labels of the pieces, and each piece's code."""
    repeats = np.array(
        [h == "replay" or (h == "startup" and link.index > 0) for h in labels.headings] or [False]
    )
    width = len(names.names) + 1
    combined = labels.heading * width + track.phase
    found = np.flatnonzero(np.bincount(combined))  # few small codes: cheaper than sorting them
    code = np.zeros(int(found.max(initial=0)) + 1, dtype=np.int64)
    code[found] = np.arange(len(found))
    rows: list[Label] = []
    for pair in found.tolist():
        heading, phase = divmod(pair, width)
        name = names.names[phase]
        owner = policy.taxonomy.phase(name).owner
        rows.append((labels.headings[heading], name, owner, bool(repeats[heading])))
    return rows, code[combined]


def _gap(bounds: Bounds, link: Link, policy: Policy) -> list[tuple[int, int]]:
    """The stretches between this attempt's release and the next one's start, exclusions taken out."""
    if link.next_start is None or link.next_start <= bounds.end:
        return []
    pieces = [(bounds.end, link.next_start)]
    for low, high in policy.exclude:
        pieces = [p for a, b in pieces for p in ((a, min(b, low)), (max(a, high), b)) if p[1] > p[0]]
    return pieces


def settled_until(told: Facts, tiles: Tiles, bounds: Bounds, link: Link, now: int, policy: Policy) -> int:
    """Until when (ns) no event that may still come can change the books of this attempt."""
    late = now - policy.lateness_ns
    heard = [told.last_seen[node] for node in told.node_names if node in told.last_seen]
    until = max(late, min(min(heard, default=0), bounds.end))
    flying = tiles.start[tiles.in_flight]
    if bounds.live and len(flying):
        until = min(until, int(flying.min()))
    end = (
        bounds.end
        if link.next_start is None
        else max(bounds.end, min(link.next_start, max(late, bounds.end)))
    )
    return min(until, end) if until < bounds.end else end


def _check(told: Facts, segments: Segments, bounds: Bounds, link: Link, policy: Policy) -> None:
    """The law of conservation, at run time: the segments tile the attempt and its gap exactly."""
    end = bounds.end if link.next_start is None else max(bounds.end, link.next_start)
    expected = end - bounds.start
    for low, high in _merged(policy.exclude):
        expected -= max(min(high, end) - max(low, bounds.start), 0)
    booked = int((segments.end - segments.start).sum())
    ordered = bool((segments.start[1:] >= segments.end[:-1]).all()) and bool(
        (segments.end > segments.start).all()
    )
    if booked != expected or not ordered:
        msg = f"job {told.job!r}, attempt {told.attempt!r}: booked {booked} ns of {expected} ns (in order: {ordered})"
        raise Unbalanced(msg)


def _merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out
