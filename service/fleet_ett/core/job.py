"""A job put together from its attempts: incidents with their full cost, sub-metrics, L1 and L2.

An incident is one unplanned or planned end of an attempt with everything that it cost: detection, the
gap, the restart's start-up and the replay that followed (accounting.md, sections 5 to 7). Times ns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fleet_ett.core import ratios
from fleet_ett.core.causes import KINDS
from fleet_ett.core.submetrics import sub_metrics
from fleet_ett.core.summary import add_pair
from fleet_ett.core.taxonomy import L2_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ett_collector.wire import Event
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.summary import AttemptSummary, Pair


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


def assemble(
    job: str,
    meta: JobMeta,
    summaries: Sequence[AttemptSummary],
    *,
    now: int,
    policy: Policy,
) -> JobSummary:
    """The job's books from its attempts' summaries, in order of their index."""
    del policy
    sums: dict[str, dict[str, Pair]] = {name: {} for name in ("headings", "phases", "components", "l2")}
    overlapped: dict[str, int] = {}
    held: dict[tuple[str, int], int] = {}
    for summary in summaries:
        for name, total in sums.items():
            for key, (wall, gpu) in getattr(summary, name).items():
                add_pair(total, key, wall, gpu)
        for key, amount in summary.overlapped.items():
            overlapped[key] = overlapped.get(key, 0) + amount
        for node, rank, wall in summary.held_up_by:
            held[node, rank] = held.get((node, rank), 0) + wall
    incidents = _incidents(summaries)
    induced: dict[str, Pair] = {}
    failures = dict.fromkeys(KINDS, 0)
    for incident in incidents:
        add_pair(induced, incident.component, incident.wall_ns, incident.gpu_ns)
        failures[incident.kind] += 1
    replayed = [s.steps_replayed for s in summaries]
    productive_wall, productive_gpu = sums["headings"].get("productive", [0, 0])
    wall = sum(s.wall_ns for s in summaries)
    gpu = sum(s.gpu_ns for s in summaries)
    flags = [flag for s in summaries for flag in s.flags]
    if meta.conflict:
        flags.append({"flag": "job_meta_conflict", "attempt": None})
    last = summaries[-1] if summaries else None
    return JobSummary(
        job=job,
        meta=meta,
        start=summaries[0].start if summaries else None,
        end=last.end if last else None,
        live=any(s.live for s in summaries),
        as_of=now,
        wall_ns=wall,
        gpu_ns=gpu,
        ett=ratios.ett(productive_wall, wall),
        ett_gpu=ratios.ett(productive_gpu, gpu),
        headings=sums["headings"],
        phases=sums["phases"],
        components=sums["components"],
        induced=induced,
        l2={bucket: sums["l2"].get(bucket, [0, 0]) for bucket in L2_BUCKETS},
        overlapped=overlapped,
        provisional_ns=sum(s.provisional_ns for s in summaries),
        settled_until=_settled_until(summaries),
        steps={
            "productive": sum(s.steps_productive for s in summaries),
            "replayed": None if None in replayed else sum(r or 0 for r in replayed),
        },
        attempts=len(summaries),
        failures=failures,
        incidents=incidents,
        flags=flags,
        held_up_by=[
            {"node": node, "rank": rank, "ns": ns}
            for (node, rank), ns in sorted(held.items(), key=lambda item: (-item[1], item[0]))
        ],
        metrics=sub_metrics(summaries, incidents, failures, wall, productive_wall),
    )


def _settled_until(summaries: Sequence[AttemptSummary]) -> int | None:
    """Everything before it is settled: the first attempt that is not settled to its end decides."""
    until: int | None = None
    for summary in summaries:
        until = summary.settled_until
        if summary.provisional_ns:
            break
    return until


def _incidents(summaries: Sequence[AttemptSummary]) -> list[Incident]:
    out: list[Incident] = []
    for summary in summaries:
        failure = summary.failure
        if failure is None:
            continue
        after = summaries[summary.index + 1] if summary.index + 1 < len(summaries) else None
        restart, replay = (after.restart, after.replay) if after else ([0, 0], [0, 0])
        costs = [summary.tail, summary.gap, restart, replay]
        progress = summary.last_progress_at
        out.append(
            Incident(
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
        )
    return out


def _rolled_back_to(after: AttemptSummary | None) -> int | None:
    if after is None:
        return None
    if after.loaded_step is not None:
        return after.loaded_step
    return None if after.first_step is None else max(after.first_step - 1, 0)
