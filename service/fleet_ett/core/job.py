"""A job put together from its attempts: what it is, its sums, incidents, sub-metrics, L1 and L2.

Times ns (accounting.md, sections 5 to 7).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from fleet_ett.core import ratios
from fleet_ett.core.incidents import incident_of
from fleet_ett.core.submetrics import sub_metrics, times_of_incidents
from fleet_ett.core.taxonomy import L2_BUCKETS
from fleet_ett.core.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ett_collector.wire import Event
    from fleet_ett.core.incidents import Incident
    from fleet_ett.core.summary import AttemptSummary, Pair


# What a job's summary holds of each attempt or incident.
OF_ATTEMPTS = ("incidents", "flags", "held_up_by")
TIMES = ("time_to_recover_ns", "catch_up_ns", "detection_ns")


@dataclass(frozen=True, slots=True)
class JobMeta:
    """What `job` events say. Where they disagree the smallest value wins, and `conflict` is set."""

    name: str | None = None
    cluster: str = ""
    team: str = ""
    model: str = ""
    framework: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    conflict: bool = False


def job_meta(events: Sequence[Event]) -> JobMeta:
    """The job's own description; the same from any order of the events."""
    told: dict[str, set[str]] = {}
    labels: dict[str, set[str]] = {}
    for event in events:
        for name in ("name", "cluster", "team", "model", "framework"):
            if name in event.body:
                told.setdefault(name, set()).add(event.body[name])
        for key, value in event.body.get("labels", {}).items():
            labels.setdefault(key, set()).add(value)
    conflict = any(len(values) > 1 for values in (*told.values(), *labels.values()))
    fields: dict[str, Any] = {name: min(values) for name, values in told.items()}
    return JobMeta(
        **fields,
        labels={k: min(v) for k, v in sorted(labels.items())},
        conflict=conflict,
    )


@dataclass(slots=True)
class JobSummary:
    """The books of one job in sums. Pairs are [wall ns, GPU-ns]; `ett` is a ratio by wall time."""

    job: str
    meta: JobMeta
    start: int | None
    end: int | None
    live: bool
    as_of: int
    wall_ns: int
    gpu_ns: int
    ett: float | None
    ett_gpu: float | None
    headings: dict[str, Pair]
    phases: dict[str, Pair]
    components: dict[str, Pair]
    induced: dict[str, Pair]
    l2: dict[str, Pair]
    overlapped: dict[str, int]
    provisional_ns: int
    settled_until: int | None
    steps: dict[str, int | None]
    attempts: int
    failures: dict[str, int]
    incidents: list[Incident]
    flags: list[dict[str, Any]]
    held_up_by: list[dict[str, Any]]
    metrics: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    def sums_to_json(self) -> dict[str, Any]:
        """JSON-able form of what does not grow with the number of attempts: for one who has them at hand."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in OF_ATTEMPTS}
        metrics = {name: value for name, value in self.metrics.items() if name not in TIMES}
        return {**told, "meta": asdict(self.meta), "metrics": metrics}


def assemble(
    job: str,
    meta: JobMeta,
    summaries: Sequence[AttemptSummary],
    *,
    now: int,
    before: Totals | None = None,
) -> JobSummary:
    """The job's books from its attempts' summaries, in order of their index.

    `before`: the sums of the attempts before them, so that only the last few need to be at hand; incidents,
    flags, who held the job up and the lists among the metrics are then of the attempts at hand alone.
    """
    totals = Totals() if before is None else before.copy()
    ended: list[tuple[Incident, AttemptSummary | None]] = []
    for summary, after in _each(summaries):
        incident = totals.add(summary, after)
        if incident is not None:
            ended.append((incident, after))
    productive_wall, productive_gpu = totals.of("headings", "productive")
    return JobSummary(
        job=job,
        meta=meta,
        start=totals.start,
        end=summaries[-1].end if summaries else None,
        live=totals.live,
        as_of=now,
        wall_ns=totals.wall_ns,
        gpu_ns=totals.gpu_ns,
        ett=ratios.ett(productive_wall, totals.wall_ns),
        ett_gpu=ratios.ett(productive_gpu, totals.gpu_ns),
        headings=totals.headings,
        phases=totals.phases,
        components=totals.components,
        induced=totals.induced,
        l2={bucket: totals.of("l2", bucket) for bucket in L2_BUCKETS},
        overlapped=totals.overlapped,
        provisional_ns=totals.provisional_ns,
        settled_until=totals.settled_until,
        steps={"productive": totals.steps_productive, "replayed": totals.steps_replayed},
        attempts=totals.attempts,
        failures=totals.failures,
        incidents=[incident for incident, _ in ended],
        flags=_flags(summaries, meta_conflict=meta.conflict),
        held_up_by=held_up_by(summaries),
        metrics=sub_metrics(totals) | times_of_incidents(ended),
    )


def told_by_attempts(summaries: Sequence[AttemptSummary], *, meta_conflict: bool) -> dict[str, Any]:
    """The rest of what `assemble` tells, beside incidents, for one who has sums only: from all attempts."""
    ended = []
    for summary, after in _each(summaries):
        incident = incident_of(summary, after)
        if incident is not None:
            ended.append((incident, after))
    return {
        "flags": _flags(summaries, meta_conflict=meta_conflict),
        "held_up_by": held_up_by(summaries),
        **times_of_incidents(ended),
    }


def _each(summaries: Sequence[AttemptSummary]) -> Iterable[tuple[AttemptSummary, AttemptSummary | None]]:
    return zip(summaries, [*summaries[1:], None][: len(summaries)], strict=True)


def _flags(summaries: Iterable[AttemptSummary], *, meta_conflict: bool) -> list[dict[str, Any]]:
    flags = [flag for one in summaries for flag in one.flags]
    return [*flags, {"flag": "job_meta_conflict", "attempt": None}] if meta_conflict else flags


def held_up_by(summaries: Iterable[AttemptSummary]) -> list[dict[str, Any]]:
    """Who held the job up, and for how long (wall ns), the longest first."""
    held: dict[tuple[str, int], int] = {}
    for summary in summaries:
        for node, rank, wall in summary.held_up_by:
            held[node, rank] = held.get((node, rank), 0) + wall
    return [
        {"node": node, "rank": rank, "ns": ns}
        for (node, rank), ns in sorted(held.items(), key=lambda item: (-item[1], item[0]))
    ]
