"""The families of the Prometheus page as rows: the data, no logic.

Base units are seconds and ratios. No label carries a job, node, rank or free text of an agent but
`cluster` and `team`, which are bounded (`MAX_TENANTS`).
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000
# Clusters and teams that get series of their own; later ones are shown together as "other".
MAX_TENANTS = 500
OTHER = "other"
CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of the books: its name without `ett_` and `_total`, its labels, its unit in the books."""

    name: str
    help: str
    labels: tuple[str, ...]
    is_time: bool


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram by cluster, in seconds."""

    name: str
    help: str


COUNTERS: tuple[Counter, ...] = (
    Counter("wall_seconds", "Settled wall time of jobs.", ("cluster", "team"), is_time=True),
    Counter(
        "gpu_seconds",
        "Settled GPU time by heading; the headings add up to all.",
        ("cluster", "team", "heading"),
        is_time=True,
    ),
    Counter(
        "lost_gpu_seconds",
        "Settled GPU time that was not productive, by direct owner.",
        ("cluster", "component", "phase", "repeated"),
        is_time=True,
    ),
    Counter(
        "induced_gpu_seconds",
        "GPU time that incidents cost, by the component that caused them.",
        ("cluster", "component", "cause"),
        is_time=True,
    ),
    Counter("replayed_steps", "Steps trained again.", ("cluster", "team"), is_time=False),
    Counter(
        "failures",
        "Attempts ended, completion left out.",
        ("cluster", "component", "cause", "kind"),
        is_time=False,
    ),
    Counter("attempts", "Attempts begun.", ("cluster", "team"), is_time=False),
)
HISTOGRAMS: tuple[Histogram, ...] = (
    Histogram("time_to_start_seconds", "Allocation to the first new-data step of a job's first attempt."),
    Histogram("time_to_recover_seconds", "Failure to the first step of the next attempt."),
    Histogram("detection_seconds", "Last progress to the end of an attempt that failed."),
)
EVENT_RESULTS = ("accepted", "duplicate", "conflict", "quarantined", "rejected")
