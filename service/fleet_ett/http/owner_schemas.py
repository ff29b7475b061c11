"""The shapes of the answers about who made whom pay: incidents, components, nodes, and what was refused.

Units as in `schemas.py`: ns, GPU-ns, ratios 0..1 or null.
"""

from __future__ import annotations

from pydantic import Field

from fleet_ett.http.schemas import EXAMPLE_NS, Answer, Losses, Ratio


class IncidentRow(Answer):
    """One end of an attempt that was not its completion, with everything that it cost."""

    job: str
    attempt: str
    attempt_index: int | None
    cluster: str
    team: str
    model: str
    at: int = Field(examples=[EXAMPLE_NS])
    outcome: str = Field(examples=["failed"], description="What the scheduler or launcher called the end.")
    cause: str = Field(examples=["gpu_off_bus"])
    kind: str = Field(examples=["infra"], description="infra, user, planned or unknown.")
    component: str = Field(examples=["hw_fleet"])
    owner: str
    status: str | None = Field(description="established, supported, hypothesis or unknown.")
    evidence: object = Field(description="What decided the verdict.")
    node: str | None
    rank: int | None
    stall_ns: int
    gap_ns: int
    restart_ns: int
    replay_ns: int
    wall_ns: int = Field(description="Stall, gap, restart and replay together.")
    gpu_ns: int
    detection_ns: int | None
    replayed_steps: int | None = Field(
        description="Steps trained again; null where the step unit is unknown."
    )
    rolled_back_to: int | None = Field(description="The step of the checkpoint that the next attempt loaded.")


class NodeRow(Answer):
    """One node: whom it held up, and what failed on it."""

    node: str
    held_ns: int = Field(
        description="Wall ns for which others waited for it, in the components and phases asked for."
    )
    held_gpu_ns: int
    jobs: int = Field(description="Jobs that it held up so.")
    failures: int = Field(description="Incidents, planned ends left out, that name it.")
    infra_failures: int
    induced_gpu_ns: int = Field(description="GPU ns of those incidents.")
    faults: int = Field(description="Faults that it reported (XID, ECC, link, ...).")
    last_seen: int | None
    clock_offset_ns: int | None
    agent_version: str | None


class PhaseLoss(Losses):
    """A component's loss in one of its phases."""

    phase: str


class CauseLoss(Losses):
    """A component's loss by incidents of one cause."""

    cause: str


class PeriodLoss(Losses):
    """A component's loss in an hour, day or week."""

    start: int = Field(examples=[EXAMPLE_NS])


class JobLoss(Losses):
    """A component's loss in one job."""

    job: str


class ComponentRow(Answer):
    """One owner's loss."""

    component: str
    owner: str
    direct_ns: int
    direct_gpu_ns: int
    direct_settled_ns: int
    direct_settled_gpu_ns: int
    direct_share: Ratio
    induced_ns: int
    induced_gpu_ns: int
    incidents: int


class ComponentPage(ComponentRow):
    """One owner's page."""

    phases: list[PhaseLoss]
    causes: list[CauseLoss]
    trend: list[PeriodLoss]
    worst_jobs: list[JobLoss]
    worst_nodes: list[NodeRow] = Field(
        description="By the GPU time for which others waited for them in what the component owns; then where failed"
        " what it caused."
    )


class QuarantineRow(Answer):
    """One event that was refused."""

    id: int
    received: int
    node: str
    incarnation: str
    seq: int | None
    position: int = Field(description="Its place in the batch, from 0.")
    reason: str
    event: str = Field(description="What was sent, as JSON text; cut where it was long.")
