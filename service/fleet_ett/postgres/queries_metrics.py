"""One look at the books for the Prometheus page.

Counters come from `counter_totals`, which only ever rise; gauges of a window from the bookings. All times
are by the database's clock, so that every process shows the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select, text, true

from fleet_ett.postgres.queries_booked import booked, total
from fleet_ett.postgres.reads import snapshot
from fleet_ett.postgres.rows import exact_rows
from fleet_ett.postgres.tables import attempts, counter_totals, ingest_counts, jobs, marks, nodes
from fleet_ett.readings import (
    BUCKETS_S,
    DURATIONS,
    QUALITY_WINDOW,
    WINDOWS,
    Count,
    Durations,
    Productive,
    Readings,
    Running,
    Unknown,
)
from fleet_ett.reads import HOUR_NS, Window

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Connection, Engine, Select, Subquery


def read_readings(engine: Engine) -> Readings:
    """One consistent look. Raises `Unavailable` when the database cannot be reached."""
    with snapshot(engine) as conn:
        now = conn.execute(text("SELECT (extract(epoch FROM now()) * 1000000000)::bigint")).scalar_one()
        counts = _counts(conn)
        productive, unknown = _windows(conn, now)
        return Readings(
            tenants=_tenants(conn, counts),
            counts=[count for count in counts if count.metric not in DURATIONS],
            durations=_durations([count for count in counts if count.metric in DURATIONS]),
            productive=productive,
            running=_running(conn),
            unknown=unknown,
            events=_events(conn),
            ingest_lag_ns=_age(conn, now, select(func.max(nodes.c.last_seen_ns))),
            attribution_lag_ns=_age(conn, now, select(func.min(marks.c.marked_ns))) or 0,
        )


def _tenants(conn: Connection, counts: list[Count]) -> list[tuple[str, str]]:
    """Clusters and teams in the order of their first job; before them those that only counters still know."""
    query = select(jobs.c.cluster, jobs.c.team).group_by(jobs.c.cluster, jobs.c.team)
    found = [(row.cluster, row.team) for row in conn.execute(query.order_by(func.min(jobs.c.job_id)))]
    counted = {(one.labels["cluster"], one.labels["team"]) for one in counts if "team" in one.labels}
    return [*sorted(counted - set(found)), *found]


def _counts(conn: Connection) -> list[Count]:
    value = total(counter_totals.c.value).label("value")
    query = select(counter_totals.c.name, counter_totals.c.labels, value)
    found = conn.execute(query.group_by(counter_totals.c.name, counter_totals.c.labels))
    return [Count(row.name, row.labels, int(row.value)) for row in found]


def _durations(counts: list[Count]) -> list[Durations]:
    """Histograms from their counts: `le` is a bound of BUCKETS_S or "+Inf", or "sum" for the ns."""
    told = {(one.metric, one.labels["cluster"], one.labels["le"]): one.value for one in counts}
    out = []
    for metric, cluster in sorted({(metric, cluster) for metric, cluster, _ in told}):
        buckets = tuple(told.get((metric, cluster, str(bound)), 0) for bound in BUCKETS_S)
        count, sum_ns = (told.get((metric, cluster, le), 0) for le in ("+Inf", "sum"))
        out.append(Durations(metric, cluster, buckets, count, sum_ns))
    return out


def _windows(conn: Connection, now: int) -> tuple[list[Productive], list[Unknown]]:
    """Productive and unknown GPU time in each window up to `now`.

    Windows longer than an hour begin at a full hour, so that one pass over the ledger answers for all.
    """
    since = {
        name: -((length - now) // HOUR_NS) * HOUR_NS for name, length in WINDOWS.items() if length > HOUR_NS
    }
    last_hour = {name: 0 for name in WINDOWS if name not in since}
    productive: list[Productive] = []
    unknown: dict[str, Unknown] = {}
    for rows, windows in (
        (booked(Window(now - HOUR_NS, now)), last_hour),
        (booked(Window(min(since.values()))), since),
    ):
        for cluster, team, *amounts in conn.execute(_gpu_time(rows, windows)):
            for place, window in enumerate(windows):
                useful, silent, held = (int(one) for one in amounts[3 * place : 3 * place + 3])
                productive.append(Productive(cluster, team, window, useful, held))
                if window == QUALITY_WINDOW:
                    had = unknown.get(cluster, Unknown(cluster, 0, 0))
                    unknown[cluster] = Unknown(cluster, had.unknown_gpu_ns + silent, had.gpu_ns + held)
    return productive, list(unknown.values())


def _gpu_time(rows: Subquery, windows: dict[str, int]) -> Select[Any]:
    """By cluster and team: for each window (its first hour in ns) productive, unknown and all GPU-ns."""
    headings = (rows.c.heading == "productive", rows.c.heading == "unknown", true())
    sums = [
        total(rows.c.gpu_ns, and_(rows.c.hour_ns >= start, heading)).label(f"sum_{place}_{number}")
        for place, start in enumerate(windows.values())
        for number, heading in enumerate(headings)
    ]
    keys = (jobs.c.cluster, jobs.c.team)
    return select(*keys, *sums).join_from(rows, jobs, jobs.c.job_id == rows.c.job_id).group_by(*keys)


def _running(conn: Connection) -> list[Running]:
    query = (
        select(
            jobs.c.cluster,
            jobs.c.team,
            func.count(jobs.c.job_id.distinct()).label("jobs"),
            total(attempts.c.gpus).label("gpus"),
        )
        .join_from(jobs, attempts, attempts.c.job_id == jobs.c.job_id)
        .where(jobs.c.live, attempts.c.live)
        .group_by(jobs.c.cluster, jobs.c.team)
    )
    return [Running(row.cluster, row.team, row.jobs, int(row.gpus)) for row in conn.execute(query)]


def _events(conn: Connection) -> dict[str, int]:
    query = select(ingest_counts.c.result, total(ingest_counts.c.n).label("n")).group_by(
        ingest_counts.c.result
    )
    return {str(row["result"]): int(str(row["n"])) for row in exact_rows(conn, query)}


def _age(conn: Connection, now: int, query: Select[Any]) -> int | None:
    moment: int | None = conn.scalar(query)
    return None if moment is None else now - moment
