"""The few knobs of the accounting, with the defaults of the contract (accounting.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet_ett.core.taxonomy import DEFAULT, Taxonomy

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 3600 * SECOND


@dataclass(frozen=True, slots=True)
class Policy:
    """How events are judged. Durations in ns.

    `lateness_ns`: a booking older than this is settled. `hang_ns`: silence with heartbeats is a stall
    of a live attempt after it. `heartbeat_ns`: a node whose last heartbeat is older is gone, and a
    heartbeat speaks for this long. `before_ns`, `after_ns`: where evidence of a failure is looked for,
    around the last progress and the end. `flow_ns`: steps that recent still flow. `exclude`:
    [start, end) intervals that an operator took out of the books. `seam_ns`, `warm_up_ns`: how often, and with
    how much time read again, the books of a long attempt may go on from what is settled; no figure depends on them.
    """

    lateness_ns: int = 15 * MINUTE
    hang_ns: int = 10 * MINUTE
    heartbeat_ns: int = 60 * SECOND
    before_ns: int = 10 * MINUTE
    after_ns: int = 5 * MINUTE
    flow_ns: int = 60 * SECOND
    seam_ns: int = 30 * MINUTE
    warm_up_ns: int = 10 * MINUTE
    exclude: tuple[tuple[int, int], ...] = ()
    taxonomy: Taxonomy = field(default=DEFAULT)
