"""The families of the Prometheus page as rows: the data, no logic.

Base units are seconds and ratios. No label carries a job, node, rank or free text of an agent but
`cluster` and `team`, which are bounded (`readings.MAX_TENANTS`).
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Told:
    """A metric without `ett_` before it, and what it is, for one who has never heard of it."""

    name: str
    help: str


@dataclass(frozen=True, slots=True)
class Counter(Told):
    """A counter of the books (without `_total`), its labels, and whether the books have it in ns."""

    labels: tuple[str, ...]
    is_time: bool


COUNTERS: tuple[Counter, ...] = (
    Counter(
        "wall_seconds",
        "Time during which training jobs held hardware, one second per job and second. Settled: counted once late"
        " reports can no longer change it, some minutes after it has passed.",
        ("cluster", "team"),
        is_time=True,
    ),
    Counter(
        "gpu_seconds",
        "GPU time that training jobs held (GPUs x seconds), by what it was spent on; settled. ETT, the share that"
        ' trained on new data: rate of heading="productive" divided by the rate of all headings.',
        ("cluster", "team", "heading"),
        is_time=True,
    ),
    Counter(
        "lost_gpu_seconds",
        'GPU time that did not train on new data, by the component whose phase it was; settled. repeated="true":'
        " start-up or steps that an earlier attempt of the job had done already. Divide by ett_gpu_seconds_total.",
        ("cluster", "component", "phase", "repeated"),
        is_time=True,
    ),
    Counter(
        "induced_gpu_seconds",
        "GPU time that failures cost (stall before, gap, restart and steps done again), by the component that caused"
        " the failure. The same seconds as in ett_lost_gpu_seconds_total, seen by who is to blame: never add the two.",
        ("cluster", "component", "cause"),
        is_time=True,
    ),
    Counter(
        "replayed_steps",
        "Training steps done again because a failure had undone them.",
        ("cluster", "team"),
        is_time=False,
    ),
    Counter(
        "failures",
        "Attempts of jobs that ended before the job was complete, by cause. kind: infra (the fleet's fault), user (the"
        " job's own code), planned (preemption, maintenance), unknown.",
        ("cluster", "component", "cause", "kind"),
        is_time=False,
    ),
    Counter(
        "attempts",
        "Attempts begun: launches of jobs on hardware, restarts among them.",
        ("cluster", "team"),
        is_time=False,
    ),
)
HISTOGRAMS: tuple[Told, ...] = (
    Told(
        "time_to_start_seconds",
        "Per job: from the first hardware given to the first step on new data (time to start).",
    ),
    Told(
        "time_to_recover_seconds",
        "Per failure: from the end of the attempt to the first step of the next one (time to recover).",
    ),
    Told(
        "detection_seconds",
        "Per failure: from the last progress to the end of the attempt, the time in which nobody had noticed.",
    ),
)
RATIO = Told(
    "effective_training_ratio",
    "Effective training time (ETT): productive GPU time as 0..1 of all GPU time held in the last 1h, 24h, 7d or 30d"
    " (from a full hour on), the newest minutes included although not settled. Of several teams or clusters: divide"
    " sums of ett_gpu_seconds_total, never average this.",
)
QUALITY = Told(
    "data_quality_ratio",
    "Share (0..1) of the GPU time of the last 24 hours for which nothing was reported. High: look after collectors"
    " before you believe anything else here.",
)
RUNNING = Told("jobs_running", "Jobs that hold hardware now.")
ALLOCATED = Told("gpus_allocated", "GPUs that running jobs hold now.")
STUCK = Told(
    "gpus_without_progress",
    "GPUs that running jobs hold now although they have shown neither a step nor any other phase for longer than"
    " ETT_HANG_S, while their nodes are heard: hung, as far as anyone can tell. They are in ett_gpus_allocated, too.",
)
EVENTS = Told(
    "events",
    "Events that agents sent, by what became of them: accepted; duplicate (sent again, harmless); conflict (sent again,"
    " but different); quarantined (refused, /v1/quarantine says why); rejected (requests refused as a whole).",
)
EVENT_RESULTS = ("accepted", "duplicate", "conflict", "quarantined", "rejected")
INGEST_LAG = Told(
    "ingest_lag_seconds", "Time since the service last took events from any agent. High: nothing arrives."
)
ATTRIBUTION_LAG = Told(
    "attribution_lag_seconds",
    "How long the oldest event that is stored has waited to be in the figures; 0 when none waits.",
)
