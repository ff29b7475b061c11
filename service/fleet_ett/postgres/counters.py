"""What Prometheus counts: settled amounts of each job, which only rise, and their sums over all jobs.

A correction that would take something back is not counted; the job's `late_ns` tells it. Amounts are added
under the cluster and team that the job names at that time, so that a later change of names moves nothing, and
under labels of closed sets: however many phases, causes and teams senders make up, the totals stay as few.

What jobs hold now (`readings.HELD`) is kept in the same way, and may fall.

A booking appends what it adds; `fold` adds that up to the totals, about once a second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.core.closed import OTHER, closed
from fleet_ett.core.incidents import incident_of
from fleet_ett.readings import BUCKETS_S, DURATIONS, HELD, MAX_TENANTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from fleet_ett.core.incidents import Incident
    from fleet_ett.core.summary import AttemptSummary

    Name = tuple[str, tuple[tuple[str, str], ...]]  # metric, its own labels

SECOND_NS = 1_000_000_000
OF_TEAMS = frozenset(
    {"wall_seconds", "gpu_seconds", "replayed_steps", "attempts"}
)  # others: by cluster alone
TENANT = ("cluster", "team")

_THERE = text(
    "SELECT job_id, name, CAST(labels AS text), CAST(value AS text) FROM counters WHERE job_id = ANY(:jobs)"
)
_ADD = text(
    "INSERT INTO counters (job_id, name, labels, value) SELECT n.job_id, n.name, n.labels, n.value"
    " FROM unnest(CAST(:jobs AS bigint[]), CAST(:names AS text[]), CAST(:labels AS jsonb[]),"
    " CAST(:values AS numeric[])) AS n (job_id, name, labels, value)"
    " ON CONFLICT (job_id, name, labels) DO UPDATE SET value = counters.value + EXCLUDED.value"
)
_ADD_DELTAS = text(
    "INSERT INTO counter_deltas (name, labels, value) SELECT n.name, n.labels, n.value"
    " FROM unnest(CAST(:names AS text[]), CAST(:labels AS jsonb[]), CAST(:values AS numeric[]))"
    " AS n (name, labels, value)"
)
_FOLD = text(
    "WITH taken AS (DELETE FROM counter_deltas RETURNING name, labels, value)"
    " INSERT INTO counter_totals (name, labels, value) SELECT name, labels, sum(value) FROM taken GROUP BY name, labels"
    " ON CONFLICT (name, labels) DO UPDATE SET value = counter_totals.value + EXCLUDED.value"
)
_PAIRS = "unnest(CAST(:clusters AS text[]), CAST(:teams AS text[])) AS n (cluster, team)"
_KNOWN = text(f"SELECT t.cluster, t.team FROM {_PAIRS} JOIN tenants t USING (cluster, team)")  # noqa: S608 - ours
_LET_IN = text(
    "INSERT INTO tenants (cluster, team, since_ns)"  # noqa: S608
    f" SELECT n.cluster, n.team, (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint FROM {_PAIRS}"
    " LIMIT greatest(:most - (SELECT count(*) FROM tenants), 0) ON CONFLICT DO NOTHING"
)
_CLUSTERS = text("SELECT DISTINCT cluster FROM tenants")
_DIFFERENT = text(
    "SELECT count(*) FROM (SELECT name, labels FROM (SELECT name, labels, value FROM counter_totals"
    " UNION ALL SELECT name, labels, value FROM counter_deltas"
    " UNION ALL SELECT name, labels, -sum(value) FROM counters GROUP BY name, labels) AS u"
    " GROUP BY name, labels HAVING sum(value) <> 0) AS differing"
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What a job's counters are to be raised to, the cluster and team that it names, and what it holds (HELD)."""

    job_id: int
    cluster: str
    team: str
    amounts: Mapping[Name, int]
    held: tuple[int, int, int] = (0, 0, 0)


def raise_counters(conn: Connection, jobs: Sequence[Counted]) -> None:
    """Raise counters of jobs to these settled amounts, and set what they hold."""
    there: dict[tuple[int, Name], int] = {}
    held: dict[int, dict[tuple[str, tuple[str, str]], int]] = {}
    for job_id, name, labels, value in conn.execute(_THERE, {"jobs": [one.job_id for one in jobs]}):
        if name in HELD:
            held.setdefault(job_id, {})[name, _tenant(labels)] = int(value)
        else:
            key = (job_id, (name, _own(labels)))
            there[key] = there.get(key, 0) + int(value)
    names_of = _let_in(conn, {(one.cluster, one.team) for one in jobs})
    added: list[tuple[int, str, str, int]] = []
    for one in jobs:
        cluster, team = names_of[one.cluster, one.team]
        added += _moved(one, (cluster, team), held.get(one.job_id, {}))
        for (name, own), amount in _closed(one.amounts).items():
            more = amount - there.get((one.job_id, (name, own)), 0)
            if more > 0:
                labels = _labels(cluster, team if name in OF_TEAMS else None, own)
                added.append((one.job_id, name, labels, more))
    if added:
        ids, names, labels_of, values = (list(column) for column in zip(*sorted(added), strict=True))
        conn.execute(_ADD, {"jobs": ids, "names": names, "labels": labels_of, "values": values})
        sums: dict[tuple[str, str], int] = {}
        for _, name, labels, more in added:
            sums[name, labels] = sums.get((name, labels), 0) + more
        told = [(name, labels, more) for (name, labels), more in sums.items()]
        names, labels_of, values = (list(column) for column in zip(*told, strict=True))
        conn.execute(_ADD_DELTAS, {"names": names, "labels": labels_of, "values": values})


def _moved(
    one: Counted, tenant: tuple[str, str], had: Mapping[tuple[str, tuple[str, str]], int]
) -> Iterator[tuple[int, str, str, int]]:
    """What has to be added so that a job holds what it does, under these labels alone."""
    now = {(name, tenant): amount for name, amount in zip(HELD, one.held, strict=True)}
    for name, labels in sorted(now.keys() | had.keys()):
        more = now.get((name, labels), 0) - had.get((name, labels), 0)
        if more:
            yield one.job_id, name, _labels(*labels, ()), more


def fold(conn: Connection) -> None:
    """Add up what bookings appended. By one transaction at a time: `rollups.fold` sees to it."""
    conn.execute(_FOLD)


def differences(conn: Connection) -> list[str]:
    """Where the totals are not the sums of the jobs' counters, in words; nothing but after a bug."""
    found = conn.execute(_DIFFERENT).scalar_one()
    return [f"counter_totals: {found} series differ from the jobs' counters"] if found else []


def _let_in(conn: Connection, pairs: set[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """The labels of these clusters and teams: their own as long as there are few, later ones are others."""
    clusters, teams = (list(column) for column in zip(*sorted(pairs), strict=True))
    told = {"clusters": clusters, "teams": teams}
    known = {tuple(row) for row in conn.execute(_KNOWN, told)}
    if len(known) < len(pairs):
        conn.execute(_LET_IN, told | {"most": MAX_TENANTS})
        known = {tuple(row) for row in conn.execute(_KNOWN, told)}
    out = {pair: pair for pair in pairs if pair in known}
    if len(out) < len(pairs):
        with_series = frozenset(conn.execute(_CLUSTERS).scalars())
        for cluster, team in pairs - out.keys():
            out[cluster, team] = (cluster if cluster in with_series else OTHER, OTHER)
    return out


def _closed(amounts: Mapping[Name, int]) -> dict[Name, int]:
    out: dict[Name, int] = {}
    for (name, own), amount in amounts.items():
        key = (name, closed(own))
        out[key] = out.get(key, 0) + amount
    return out


@lru_cache(maxsize=10_000)
def _own(labels: str) -> tuple[tuple[str, str], ...]:
    """A metric's own labels, of all that are stored with it."""
    return tuple(sorted((key, one) for key, one in json.loads(labels).items() if key not in TENANT))


@lru_cache(maxsize=10_000)
def _tenant(labels: str) -> tuple[str, str]:
    told = json.loads(labels)
    return told["cluster"], told["team"]


@lru_cache(maxsize=10_000)
def _labels(cluster: str, team: str | None, own: tuple[tuple[str, str], ...]) -> str:
    tenant = {"cluster": cluster} if team is None else {"cluster": cluster, "team": team}
    return json.dumps({**tenant, **dict(own)}, sort_keys=True)


def settled_amounts(sums: Mapping[tuple[str, str, str, bool], Sequence[int]]) -> dict[Name, int]:
    """The counters of a job from its settled (wall ns, GPU-ns) by heading, phase, component and repeated."""
    out: dict[Name, int] = {}
    for (heading, phase, component, repeated), (wall, gpu) in sums.items():
        _add(out, "wall_seconds", wall)
        _add(out, "gpu_seconds", gpu, heading=heading)
        if heading != "productive":
            told = {"component": component, "phase": phase, "repeated": "true" if repeated else "false"}
            _add(out, "lost_gpu_seconds", gpu, **told)
    return out


def attempt_amounts(
    attempts: Sequence[AttemptSummary], count: int, *, now: int, evidence_ns: int
) -> dict[Name, int]:
    """What the first `count` of these attempts and their incidents count for, as far as they are settled.

    `attempts` follow each other. An incident counts once no evidence can come any more: `evidence_ns` after its end.
    """
    out: dict[Name, int] = {}
    for place, attempt in enumerate(attempts[:count]):
        after = attempts[place + 1] if place + 1 < len(attempts) else None
        if attempt.settled_until > attempt.start:
            _add(out, "attempts", 1)
        if _is_past(attempt, attempt.first_new_at):
            if attempt.steps_replayed:
                _add(out, "replayed_steps", attempt.steps_replayed)
            if attempt.index == 0 and attempt.first_new_at is not None:
                _observe(out, DURATIONS[0], attempt.first_new_at - attempt.start)
        incident = incident_of(attempt, after)
        if incident is not None and attempt.provisional_ns == 0 and now >= incident.at + evidence_ns:
            _count_incident(out, incident, after)
    return out


def add_amounts(amounts: dict[Name, int], more: Mapping[Name, int]) -> None:
    """Add amounts to others."""
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def packed(value: object) -> str:
    """JSON as the database takes it; sums of GPU-ns do not fit 64 bits."""
    return json.dumps(value, separators=(",", ":"))


def _count_incident(out: dict[Name, int], incident: Incident, after: AttemptSummary | None) -> None:
    told = {"component": incident.component, "cause": incident.cause}
    _add(out, "failures", 1, **told, kind=incident.kind)
    if incident.detection_ns is not None:
        _observe(out, DURATIONS[2], incident.detection_ns)
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
