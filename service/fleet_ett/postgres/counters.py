"""What Prometheus counts: settled amounts of each job, which only rise, and their sums over all jobs.

A correction that would take something back is not counted; the job's `late_ns` tells it. Amounts are added
under the cluster and team that the job names at that time, so that a later change of names moves nothing.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.readings import BUCKETS_S, DURATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from fleet_ett.core.job import Incident, JobSummary
    from fleet_ett.core.summary import AttemptSummary

    Name = tuple[str, tuple[tuple[str, str], ...]]  # metric, its own labels

SLOTS = 16
SECOND_NS = 1_000_000_000
OF_TEAMS = frozenset(
    {"wall_seconds", "gpu_seconds", "replayed_steps", "attempts"}
)  # others: by cluster alone
TENANT = ("cluster", "team")

_THERE = text("SELECT name, labels, value FROM counters WHERE job_id = :job_id")
_ADD = text(
    "INSERT INTO counters (job_id, name, labels, value) SELECT :job_id, n.name, n.labels, n.value"
    " FROM unnest(CAST(:names AS text[]), CAST(:labels AS jsonb[]), CAST(:values AS numeric[]))"
    " AS n (name, labels, value)"
    " ON CONFLICT (job_id, name, labels) DO UPDATE SET value = counters.value + EXCLUDED.value"
)
_ADD_TOTALS = text(
    "INSERT INTO counter_totals (slot, name, labels, value) SELECT :slot, n.name, n.labels, n.value"
    " FROM unnest(CAST(:names AS text[]), CAST(:labels AS jsonb[]), CAST(:values AS numeric[]))"
    " AS n (name, labels, value)"
    " ON CONFLICT (slot, name, labels) DO UPDATE SET value = counter_totals.value + EXCLUDED.value"
)


def raise_counters(conn: Connection, job_id: int, cluster: str, team: str, amounts: dict[Name, int]) -> None:
    """Raise a job's counters to these settled amounts. Last in its transaction: writers of one slot wait."""
    there: dict[Name, int] = {}
    for name, labels, value in conn.execute(_THERE, {"job_id": job_id}):
        own = tuple(sorted((key, one) for key, one in labels.items() if key not in TENANT))
        there[name, own] = there.get((name, own), 0) + int(value)
    added = []
    for (name, own), amount in sorted(amounts.items()):
        more = amount - there.get((name, own), 0)
        if more > 0:
            tenant = {"cluster": cluster, "team": team} if name in OF_TEAMS else {"cluster": cluster}
            added.append((name, json.dumps({**tenant, **dict(own)}, sort_keys=True), more))
    if added:
        names, labels, values = (list(column) for column in zip(*added, strict=True))
        told = {"names": names, "labels": labels, "values": values}
        conn.execute(_ADD, {"job_id": job_id, **told})
        conn.execute(_ADD_TOTALS, {"slot": os.getpid() % SLOTS, **told})


def settled_amounts(
    sums: Iterable[tuple[str, str, str, bool, int, int]],
    summary: JobSummary,
    attempts: Sequence[AttemptSummary],
    *,
    now: int,
    evidence_ns: int,
) -> dict[Name, int]:
    """The counters of a job from what is settled of it.

    `sums`: settled (wall ns, GPU-ns) by heading, phase, component and repeated. An incident counts once no
    evidence can come any more: `evidence_ns` after its end.
    """
    out: dict[Name, int] = {}
    for heading, phase, component, repeated, wall, gpu in sums:
        _add(out, "wall_seconds", wall)
        _add(out, "gpu_seconds", gpu, heading=heading)
        if heading != "productive":
            told = {"component": component, "phase": phase, "repeated": "true" if repeated else "false"}
            _add(out, "lost_gpu_seconds", gpu, **told)
    for attempt in attempts:
        if attempt.settled_until > attempt.start:
            _add(out, "attempts", 1)
        if _is_past(attempt, attempt.first_new_at) and attempt.steps_replayed:
            _add(out, "replayed_steps", attempt.steps_replayed)
    first = attempts[0] if attempts else None
    if first is not None and first.first_new_at is not None and _is_past(first, first.first_new_at):
        _observe(out, DURATIONS[0], first.first_new_at - first.start)
    for incident in summary.incidents:
        if attempts[incident.index].provisional_ns == 0 and now >= incident.at + evidence_ns:
            _count_incident(out, incident, attempts)
    return out


def _count_incident(out: dict[Name, int], incident: Incident, attempts: Sequence[AttemptSummary]) -> None:
    told = {"component": incident.component, "cause": incident.cause}
    _add(out, "failures", 1, **told, kind=incident.kind)
    if incident.detection_ns is not None:
        _observe(out, DURATIONS[2], incident.detection_ns)
    after = attempts[incident.index + 1] if incident.index + 1 < len(attempts) else None
    if after is None or not _is_past(after, after.first_new_at):
        return  # what it costs is not over yet
    _add(out, "induced_gpu_seconds", incident.gpu_ns, **told)
    if after.first_step_at is not None:
        _observe(out, DURATIONS[1], after.first_step_at - incident.at)


def _is_past(attempt: AttemptSummary, moment: int | None) -> bool:
    """Whether an attempt is settled up to a moment in it, or as a whole where there is no such moment."""
    if moment is not None and attempt.settled_until >= moment:
        return True
    return not attempt.live and attempt.provisional_ns == 0


def _observe(out: dict[Name, int], metric: str, length_ns: int) -> None:
    for bound in BUCKETS_S:
        if length_ns <= bound * SECOND_NS:
            _add(out, metric, 1, le=str(bound))
    _add(out, metric, 1, le="+Inf")
    _add(out, metric, max(length_ns, 0), le="sum")


def _add(out: dict[Name, int], metric: str, amount: int, **labels: str) -> None:
    key = (metric, tuple(sorted(labels.items())))
    out[key] = out.get(key, 0) + amount
