"""At least once made exactly once in effect: one event for each (incarnation, seq).

Delivery order never matters: of two different events with one identity the one with the smaller
canonical bytes wins, whatever came first; of two copies that differ in the clock offset alone, the
smaller offset (accounting.md, section 9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ett_collector.wire import Event, canonical
from fleet_ett.core.steps import StepBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


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
    """Batches without an identity that is anywhere twice, and the rest as single events.

    The ranks of a node share its agent's numbers: their batches lie within each other and repeat nothing.
    """
    places: dict[str, list[int]] = {}
    for i, batch in enumerate(batches):
        places.setdefault(batch.incarnation, []).append(i)
    single: dict[str, list[int]] = {}
    for event in events:
        if event.incarnation in places:
            single.setdefault(event.incarnation, []).append(event.seq)
    mixed: set[int] = set()
    for incarnation, own in places.items():
        alone = np.array(single.get(incarnation, ()), dtype=np.int64)
        twice = _twice([batches[i].seq for i in own], alone)
        if len(twice):
            mixed.update(i for i in own if np.isin(batches[i].seq, twice).any())
    rows = [event for i in sorted(mixed) for event in batches[i].events()]
    return [batch for i, batch in enumerate(batches) if i not in mixed], rows


def _twice(columns: list[Ints], alone: Ints) -> Ints:
    """The numbers that stand twice in the columns, or in one and in `alone`."""
    columns.sort(key=lambda seq: int(seq[0]))
    rising = all(bool((seq[1:] > seq[:-1]).all()) for seq in columns)
    if rising and all(seq[-1] < after[0] for seq, after in pairwise(columns)):  # nothing to be sorted
        places = (np.minimum(seq.searchsorted(alone), len(seq) - 1) for seq in columns)
        return np.concatenate([alone[seq[at] == alone] for seq, at in zip(columns, places, strict=True)])
    ordered = np.sort(np.concatenate([*columns, alone]), kind="stable")
    twice: Ints = ordered[1:][ordered[1:] == ordered[:-1]]
    return twice
