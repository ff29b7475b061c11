"""The shapes of the answers about one job: its row, its detail, its ledger and its timeline.

Units as in `schemas.py`: ns, GPU-ns, ratios 0..1 or null. A job's own ETT is weighted by wall time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from fleet_ett.http.owner_schemas import IncidentRow
from fleet_ett.http.schemas import EXAMPLE_NS, Answer, Listing, Ratio, Sums


class JobNames(Answer):
    """Who a job is, and whether it runs."""

    job: str = Field(examples=["prod-a/8812/1772452800"])
    name: str | None
    cluster: str = Field(description="Empty: no event told it.")
    team: str
    model: str
    framework: str
    start: int | None = Field(examples=[EXAMPLE_NS], description="First allocation; null until attributed.")
    end: int | None = Field(description="Last release; null while it holds hardware.")
    live: bool
    as_of: int | None = Field(description="The time of the books; a live job's grow with it.")


class JobRow(Sums, JobNames):  # pydantic puts the fields of the last base first
    """One job and its figures in the window."""

    num_attempts: int
    num_incidents: int
    ett: Ratio = Field(description="By wall time.", examples=[0.88])
    ett_gpu_weighted: Ratio
    ett_settled: Ratio = Field(description="By wall time, settled bookings only.")
    unknown_share: Ratio = Field(description="Share of wall time that nothing was reported for.")
    error: str | None = Field(
        description="Why attribution failed; the figures are then older than the events."
    )


class Loss(Answer):
    """What a component lost a job: by its own phases, and by ending its attempts. Wall ns and GPU-ns."""

    direct_ns: int
    direct_gpu_ns: int
    induced_ns: int
    induced_gpu_ns: int


class Amount(Answer):
    """Wall ns and GPU-ns."""

    wall_ns: int
    gpu_ns: int


class Identity(Answer):
    """The L1 identity of the two-level framework: ETT = 1 - (TTS + NoF x TTR) / E2E, as a check."""

    tts_ns: int
    number_of_failures: int
    mean_ttr_ns: int
    ett: Ratio
    residual: Ratio = Field(
        description="Identity minus bottom-up: saves, input stalls, shutdown are not in it."
    )


class SubMetrics(Answer):
    """What the contract asks of a job beside its ETT; null where the events do not tell."""

    time_to_start_ns: int | None = Field(description="Allocation to the first new-data step.")
    time_to_recover_ns: list[int] = Field(
        description="Per incident: failure to the next attempt's first step."
    )
    catch_up_ns: list[int] = Field(description="Per incident: failure to new data again.")
    detection_ns: list[int] = Field(description="Per incident: last progress to the end.")
    number_of_failures: int
    mean_time_to_failure_ns: int | None
    failures_per_1000_node_days: float | None
    replayed_steps: int | None = Field(description="Null where the step unit is unknown.")
    samples_replayed: int
    replay_gpu_ns: int
    repeated_startup_ns: int
    checkpoint_saves: int
    checkpoint_interval_ns: int | None
    checkpoint_blocking_ns: int
    checkpoint_blocking_share: Ratio = Field(description="Blocking saves of wall time.")
    expected_ett: Ratio = Field(description="What failures and saves alone should leave (renewal formula).")


class DataQuality(Answer):
    """How much of the job nothing was reported for; a warning above 1%."""

    unknown_ns: int
    unknown_share: Ratio
    warning: bool
    late_ns: int = Field(description="Settled time that late events changed afterwards.")


class FailureRow(Answer):
    """Why an attempt ended."""

    at: int
    cause: str
    kind: str
    component: str
    status: str | None
    node: str | None
    rank: int | None


class AttemptRow(Answer):
    """One launch of the job on allocated hardware."""

    attempt: str = Field(examples=["slurm:8812:1"])
    index: int
    start: int
    end: int | None
    live: bool
    outcome: str
    gpus: int
    world_size: int
    nodes: list[str]
    node_count: int
    wall_ns: int
    gpu_ns: int
    ett: Ratio
    headings: dict[str, int] = Field(description="Wall ns by heading, the gap after the attempt included.")
    first_step: int | None
    last_step: int | None
    steps_productive: int
    steps_replayed: int | None
    loaded_step: int | None
    durable_step: int | None
    saves: int
    provisional_ns: int
    failure: FailureRow | None
    flags: list[dict[str, object]]


class HeldRow(Answer):
    """Who held the job up, wall ns."""

    node: str
    rank: int
    ns: int


class JobDetail(JobRow):
    """Everything about one job."""

    labels: dict[str, str]
    headings: dict[str, int] = Field(description="Wall ns; they add up to `wall_ns`.")
    gpu_headings: dict[str, int]
    phases: dict[str, int]
    components: dict[str, Loss]
    l1: Identity | None
    l2: dict[str, Amount]
    overlapped: dict[str, int] = Field(description="Background work by phase, booked nowhere.")
    steps: dict[str, int | None]
    failures: dict[str, int]
    metrics: SubMetrics | None
    data_quality: DataQuality
    held_up_by: list[HeldRow]
    flags: list[dict[str, object]]
    attempts: list[AttemptRow]
    incidents: list[IncidentRow]


class LedgerGroups(Answer):
    """What a row of a ledger is grouped by: only the groups that `by` asked for are in it."""

    attempt: str | None = None
    heading: str | None = None
    phase: str | None = None
    component: str | None = None
    repeated: bool | None = None
    hour: int | None = None
    day: int | None = None


class LedgerRow(LedgerGroups):
    """One group of a job's ledger."""

    wall_ns: int
    gpu_ns: int
    settled_wall_ns: int
    settled_gpu_ns: int
    provisional_wall_ns: int
    provisional_gpu_ns: int


class JobLedger(Answer):
    """A job's books in a window: every nanosecond under exactly one heading."""

    job: str
    live: bool
    as_of: int | None
    wall_ns: int = Field(examples=[2_500_000_000_000])
    gpu_ns: int
    ett: Ratio = Field(examples=[0.88])
    ett_gpu_weighted: Ratio
    ett_settled: Ratio
    headings: dict[str, int] = Field(
        examples=[{"productive": 2_200_000_000_000, "replay": 200_000_000_000}],
        description="Wall ns by heading; they add up to `wall_ns`.",
    )
    gpu_headings: dict[str, int]
    phases: dict[str, int]
    components: dict[str, Loss]
    settled_ns: int
    settled_gpu_ns: int
    provisional_ns: int = Field(description="Wall ns that an event which may still come can change.")
    provisional_gpu_ns: int
    error: str | None
    by: list[str]
    items: list[LedgerRow]


class JobGoodput(Answer):
    """A job under the goodput convention: seconds by bucket, null while nothing is booked."""

    job: str
    as_of: int | None
    goodput: Ratio = Field(description="productive_s / total_s", examples=[0.88])
    productive_s: float | None
    startup_s: float | None
    data_wait_s: float | None
    checkpoint_s: float | None
    recovery_gap_s: float | None
    repeated_work_s: float | None
    other_s: float | None
    total_s: float | None
    lost_progress_s: float | None

    @classmethod
    def of(cls, job: str, found: Mapping[str, Any] | None) -> JobGoodput:
        """The answer from the reader's row."""
        told = found or dict.fromkeys(name for name in cls.model_fields if name not in ("job", "goodput"))
        total = told["total_s"]
        return cls(job=job, goodput=told["productive_s"] / total if total else None, **told)


class SegmentRow(Answer):
    """A stretch of the job's time under one heading, clipped to the window."""

    start: int = Field(examples=[EXAMPLE_NS])
    end: int
    heading: str = Field(examples=["startup"])
    phase: str = Field(examples=["image_pull"])
    component: str = Field(examples=["container_image"])
    attempt: str
    node: str | None = Field(description="The node that was furthest behind.")
    rank: int | None
    gpus: int
    repeated: bool
    settled: bool


class Timeline(Listing[SegmentRow]):
    """A page of a job's timeline."""

    kept_from: int | None = Field(
        None, description="Segments that ended by then are past their retention; null: all are here."
    )
