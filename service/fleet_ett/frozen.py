"""An attempt whose raw events retention has dropped: its books stay, but for the gap after it.

What follows an attempt may still come to light: its job may be resumed weeks later. The gap up to then needs no
events of the attempt, so it is booked from the summary alone.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.segments import Segments
from fleet_ett.core.summary import book
from fleet_ett.core.taxonomy import GAP

if TYPE_CHECKING:
    from fleet_ett.core.ledger import Link
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.segments import Label
    from fleet_ett.core.summary import AttemptSummary, Pair

HEADING = "gap"


def with_gap(summary: AttemptSummary, link: Link, policy: Policy) -> tuple[AttemptSummary, Segments]:
    """The summary with the gap up to the next attempt instead of the one it had, and the gap as segments."""
    phase = policy.taxonomy.phase(GAP)
    label = (HEADING, GAP, phase.owner, False)
    end = summary.start + summary.wall_ns - summary.gap[0]
    until = end if link.next_start is None else max(link.next_start, end)
    told = deepcopy(summary)
    told.wall_ns -= told.gap[0]
    told.gpu_ns -= told.gap[1]
    for pairs, name in (
        (told.headings, HEADING),
        (told.phases, GAP),
        (told.components, phase.owner),
        (told.l2, phase.meta_l2),
    ):
        _take_away(pairs, name, told.gap)
    told.gap = [0, 0]
    gap = _segments(end, until, label, 0 if link.next_released else told.gpus)
    book(told, gap, {GAP: phase.meta_l2}, until, None)
    return replace(told, end=end, live=False, settled_until=max(told.settled_until, until)), gap


def _take_away(pairs: dict[str, Pair], name: str, amount: Pair) -> None:
    wall, gpu = pairs.get(name, [0, 0])
    if wall > amount[0]:
        pairs[name] = [wall - amount[0], gpu - amount[1]]
    else:
        pairs.pop(name, None)


def _segments(start: int, end: int, label: Label, gpus: int) -> Segments:
    """One segment, or none where it has no length."""
    n = int(end > start)
    none = np.full(n, -1, dtype=np.int64)
    return Segments(
        start=np.full(n, start, dtype=np.int64),
        end=np.full(n, end, dtype=np.int64),
        label=np.zeros(n, dtype=np.int64),
        rank=none,
        node=none,
        key=none,
        gpus=np.full(n, gpus, dtype=np.int64),
        ahead=np.zeros(n, dtype=bool),
        labels=[label],
        nodes=[],
        keys=[],
        settled_until=end,
    )
