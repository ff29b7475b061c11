"""At least once made exactly once in effect: one event for each (incarnation, seq).

Delivery order never matters: of two different events with one identity the one with the smaller
canonical bytes wins, whatever came first; of two copies that differ in the clock offset alone, the
smaller offset (accounting.md, section 9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ett_collector.wire import Event, canonical
from fleet_ett.core.steps import StepBatch

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Delivered:
    """What remains after de-duplication. `conflicted` holds the winners of conflicts."""

    events: list[Event]
    batches: list[StepBatch]
    duplicates: int = 0
    conflicts: int = 0
    conflicted: list[Event] = field(default_factory=list)


def unique(items: Iterable[Event | StepBatch]) -> Delivered:
    """One event an identity. Batches stay columns where no identity in them can repeat."""
    events: list[Event] = []
    batches: list[StepBatch] = []
    for item in items:
        if isinstance(item, StepBatch):
            if len(item):
                batches.append(item)
        else:
            events.append(item)
    if batches:
        batches, rows = _separable(batches, events)
        events.extend(rows)
    by_identity: dict[tuple[str, int], Event] = {}
    copies: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        key = (event.incarnation, event.seq)
        other = by_identity.setdefault(key, event)
        if other is not event:
            copies.setdefault(key, [other]).append(event)
    out = Delivered(list(by_identity.values()), batches)
    if copies:
        for key, several in copies.items():
            versions = sorted({(canonical(event), event.clock_offset_ns): event for event in several}.items())
            distinct = len({content for (content, _), _ in versions})
            out.duplicates += len(several) - distinct
            out.conflicts += distinct - 1
            by_identity[key] = versions[0][1]
            if distinct > 1:
                out.conflicted.append(versions[0][1])
        out.events = list(by_identity.values())
    return out


def _separable(batches: list[StepBatch], events: list[Event]) -> tuple[list[StepBatch], list[Event]]:
    """Batches whose identities cannot repeat, and the rest as single events."""
    ranges: dict[str, list[tuple[int, int, int]]] = {}
    for i, batch in enumerate(batches):
        seq = batch.seq
        rising = bool((seq[1:] > seq[:-1]).all())
        low, high = int(seq.min()), int(seq.max())
        ranges.setdefault(batch.incarnation, []).append((low, high if rising else low - 1, i))
    mixed: set[int] = set()
    for spans in ranges.values():
        spans.sort()
        reach, holder = -1, -1
        for low, high, i in spans:
            end = high
            if high < low:  # not in order: the batch may hold an identity twice
                mixed.add(i)
                end = int(batches[i].seq.max())
            if low <= reach:
                mixed.update((i, holder))
            if end > reach:
                reach, holder = end, i
    _single_events(batches, ranges, events, mixed)
    rows = [event for i in mixed for event in batches[i].events()]
    return [batch for i, batch in enumerate(batches) if i not in mixed], rows


def _single_events(
    batches: list[StepBatch],
    ranges: dict[str, list[tuple[int, int, int]]],
    events: list[Event],
    mixed: set[int],
) -> None:
    """Mark the batches in whose range of identities a single event lies."""
    for event in events:
        for low, _, i in ranges.get(event.incarnation, ()):
            if low <= event.seq and i not in mixed:
                seq = batches[i].seq
                at = int(seq.searchsorted(event.seq))
                if at < len(seq) and int(seq[at]) == event.seq:
                    mixed.add(i)
