"""The shapes of the answers about the fleet; those about one job are in `job_schemas.py`.

Times are integer nanoseconds since the epoch in UTC, durations integer nanoseconds; sums may exceed
2^63 and stay exact JSON integers. Ratios are 0..1, or null where the denominator is empty. Every sum
holds settled and provisional bookings; `settled_*` is the part that no event can change any more.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Row = TypeVar("Row", bound=BaseModel)
Ratio = float | None
EXAMPLE_NS = 1_772_452_800_000_000_000


class Answer(BaseModel):
    """An answer has exactly its fields."""

    model_config = ConfigDict(extra="forbid")


class Listing(Answer, Generic[Row]):
    """A page of rows; `next` is the cursor of the page after, null on the last."""

    items: list[Row]
    next: str | None = None


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Bad Request"])
    status: int = Field(examples=[400])
    detail: str = Field(
        examples=["from must be RFC 3339 with a zone or integer nanoseconds since the epoch, not 'now'"]
    )
    code: str = Field(examples=["invalid"], description="Stable, for programs.")


class Groups(Answer):
    """What a row is grouped by: only the groups that `by` asked for are in it. Times are their start in ns."""

    cluster: str | None = None
    team: str | None = None
    model: str | None = None
    framework: str | None = None
    job: str | None = None
    hour: int | None = None
    day: int | None = None
    week: int | None = None


class Sums(Answer):
    """Wall and GPU time held, the productive part, and how much of it is settled."""

    wall_ns: int = Field(examples=[2_500_000_000_000])
    gpu_ns: int = Field(examples=[20_000_000_000_000])
    productive_wall_ns: int
    productive_gpu_ns: int
    settled_wall_ns: int
    settled_gpu_ns: int
    provisional_wall_ns: int
    provisional_gpu_ns: int


class Ett(Sums):
    """ETT in three weights, each a ratio of sums except the job-weighted one, a mean over jobs."""

    jobs: int = Field(description="Jobs that held hardware, or waited between attempts, in the window.")
    ett: Ratio = Field(description="GPU-weighted, the measure of a fleet.", examples=[0.88])
    ett_gpu_weighted: Ratio = Field(examples=[0.88])
    ett_wall_weighted: Ratio = Field(examples=[0.88])
    ett_job_weighted: Ratio = Field(description="Mean of the jobs' own ETT.", examples=[0.86])
    ett_settled: Ratio = Field(description="GPU-weighted, settled bookings only.")
    headings: dict[str, int] = Field(description="Wall ns by heading; they add up to `wall_ns`.")
    gpu_headings: dict[str, int] = Field(description="GPU ns by heading; they add up to `gpu_ns`.")


class EttRow(Ett, Groups):  # pydantic puts the fields of the last base first
    """ETT of a group."""


class FleetEtt(Ett):
    """The total, and the groups that `by` asked for."""

    by: list[str]
    items: list[EttRow]
    next: str | None = None


class LostGroups(Groups):
    """What a row of loss is grouped by."""

    component: str | None = None
    owner: str | None = None
    phase: str | None = None
    heading: str | None = None
    repeated: bool | None = None
    cause: str | None = None
    kind: str | None = None


class Losses(Answer):
    """Direct and induced are two views of the same loss and do not add up.

    `direct_*` is null where the grouping knows incidents only (cause, kind), `induced_*` where it
    knows bookings only (phase, heading, repeated).
    """

    direct_ns: int | None = Field(description="Wall ns that were not productive.")
    direct_gpu_ns: int | None
    direct_settled_ns: int | None
    direct_settled_gpu_ns: int | None
    direct_share: Ratio = Field(
        description="`direct_gpu_ns` of all GPU time held: with ETT these add up to 1."
    )
    induced_ns: int | None = Field(description="Wall ns of incidents: stall, gap, restart, replay.")
    induced_gpu_ns: int | None
    incidents: int | None


class LostRow(Losses, LostGroups):
    """Loss of a group."""


class LostTime(Listing[LostRow]):
    """Loss in groups, beside what was held."""

    by: list[str]
    gpu_ns: int
    productive_gpu_ns: int
    lost_gpu_ns: int


class PhaseWork(Answer):
    """Startup that attempts after the first did again, by phase."""

    phase: str
    component: str
    repeated_ns: int
    repeated_gpu_ns: int


class KeyRow(Answer):
    """One piece of work with a fingerprint that was done more than once."""

    phase: str
    work_key: str
    times: int = Field(description="How often it was done in the window.")
    jobs: int
    wall_ns: int
    gpu_ns: int
    cacheable_ns: int = Field(description="All but the first time ever, in any job.")
    cacheable_gpu_ns: int


class RepeatedWork(Listing[KeyRow]):
    """What was done again: steps, startup, and what a cache would have saved. `items` are the dearest keys."""

    replay_ns: int
    replay_gpu_ns: int
    replayed_steps: int | None = Field(description="Null where a job's step unit is unknown.")
    repeated_startup_ns: int
    repeated_startup_gpu_ns: int
    keyed_ns: int = Field(description="Startup work that carried a key, in any attempt.")
    keyed_gpu_ns: int
    cacheable_in_job_ns: int = Field(description="The same job had done it before.")
    cacheable_in_job_gpu_ns: int
    cacheable_ns: int = Field(description="Some job of the fleet had done it before.")
    cacheable_gpu_ns: int
    cacheable_share: Ratio = Field(description="`cacheable_gpu_ns` of `keyed_gpu_ns`.")
    phases: list[PhaseWork]


class Health(Answer):
    """Whether the process lives."""

    status: str = Field(examples=["ok"])
    version: str


class Readiness(Answer):
    """Whether the service can answer: its database is there and at the newest migration."""

    status: str = Field(
        examples=["ready"], description="`ready`, or `partly` when a server of several is away."
    )
    migration: str | None
    head: str | None
    away: list[str] = Field(description="What is wrong with servers that own jobs; empty with one database.")
