"""What the Prometheus page reads: the port between `metrics/`, which shows it, and `postgres/`, which has it.

Amounts are exact integers in the unit named; nothing here is a ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

# Pairs of cluster and team that get series of their own; what names others is counted under "other".
MAX_TENANTS = 500
# Windows of the ETT gauge, in ns.
WINDOWS: dict[str, int] = {
    "1h": 3_600_000_000_000,
    "24h": 24 * 3_600_000_000_000,
    "7d": 7 * 24 * 3_600_000_000_000,
    "30d": 30 * 24 * 3_600_000_000_000,
}
# The window of the data quality gauge.
QUALITY_WINDOW = "24h"
# Histograms, kept as counters: labels cluster and `le` (a bound of BUCKETS_S as text, "+Inf" for all of them,
# "sum" for the sum in ns). Cumulative, as Prometheus has them.
DURATIONS = ("time_to_start_seconds", "time_to_recover_seconds", "detection_seconds")
# What jobs hold now, kept like counters, but it also falls: labels cluster and team.
HELD = ("jobs_running", "gpus_allocated", "gpus_without_progress")
# Upper bounds (s).
BUCKETS_S = (1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400)


@dataclass(frozen=True, slots=True)
class Count:
    """One counter of the books: its metric, its labels (from closed sets), and its value in ns (times) or a number."""

    metric: str
    labels: dict[str, str]
    value: int


@dataclass(frozen=True, slots=True)
class Durations:
    """One histogram of a cluster: how many values lie at or below each of BUCKETS_S, all of them, their sum (ns)."""

    metric: str
    cluster: str
    buckets: tuple[int, ...]
    count: int
    sum_ns: int


@dataclass(frozen=True, slots=True)
class Productive:
    """Productive of held GPU-ns of one cluster and team in a window."""

    cluster: str
    team: str
    window: str
    productive_gpu_ns: int
    gpu_ns: int


@dataclass(frozen=True, slots=True)
class Running:
    """Jobs that hold hardware now, how many GPUs, and how many of these are held without progress."""

    cluster: str
    team: str
    jobs: int
    gpus: int
    stuck_gpus: int = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """GPU-ns of a cluster for which nothing was reported, of all."""

    cluster: str
    unknown_gpu_ns: int
    gpu_ns: int


@dataclass(frozen=True, slots=True)
class Readings:
    """One consistent look at the books. `tenants`: (cluster, team), those first that were booked first."""

    tenants: list[tuple[str, str]] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    durations: list[Durations] = field(default_factory=list)
    productive: list[Productive] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    ingest_lag_ns: int | None = None
    attribution_lag_ns: int | None = None


class ReadReadings(Protocol):
    """Takes one look at the books."""

    def __call__(self) -> Readings:
        """Raises `Unavailable` when the database cannot be reached."""
        ...
