"""One unplanned or planned end of an attempt with everything that it cost (accounting.md, section 5).

Detection, the gap, the restart's start-up and the replay that followed. Times ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet_ett.core.summary import AttemptSummary


@dataclass(frozen=True, slots=True)
class Incident:
    """One end of an attempt that was not completion, with what it cost. Wall ns; `gpu_ns` GPU-ns."""

    attempt: str
    index: int
    at: int
    outcome: str
    cause: str
    kind: str
    component: str
    status: str
    node: str | None
    rank: int | None
    evidence: tuple[dict[str, Any], ...]
    stall_ns: int
    gap_ns: int
    restart_ns: int
    replay_ns: int
    gpu_ns: int
    detection_ns: int | None
    rolled_back_to: int | None
    replayed_steps: int | None

    @property
    def wall_ns(self) -> int:
        """The whole cost in wall time."""
        return self.stall_ns + self.gap_ns + self.restart_ns + self.replay_ns


def incident_of(summary: AttemptSummary, after: AttemptSummary | None) -> Incident | None:
    """The incident that an attempt ended with, if any; `after` is the attempt that followed."""
    failure = summary.failure
    if failure is None:
        return None
    restart, replay = (after.restart, after.replay) if after else ([0, 0], [0, 0])
    costs = [summary.tail, summary.gap, restart, replay]
    progress = summary.last_progress_at
    return Incident(
        attempt=summary.attempt,
        index=summary.index,
        at=failure.at,
        outcome=failure.outcome,
        cause=failure.cause,
        kind=failure.kind,
        component=failure.component,
        status=failure.status,
        node=failure.node,
        rank=failure.rank,
        evidence=failure.evidence,
        stall_ns=costs[0][0],
        gap_ns=costs[1][0],
        restart_ns=costs[2][0],
        replay_ns=costs[3][0],
        gpu_ns=sum(cost[1] for cost in costs),
        detection_ns=None if progress is None else max(failure.at - progress, 0),
        rolled_back_to=_rolled_back_to(after),
        replayed_steps=after.steps_replayed if after else 0,
    )


def _rolled_back_to(after: AttemptSummary | None) -> int | None:
    if after is None:
        return None
    if after.loaded_step is not None:
        return after.loaded_step
    return None if after.first_step is None else max(after.first_step - 1, 0)
