"""One look at the books for the Prometheus page.

Counters come from `counter_totals`, which only ever rise; gauges of a window from the bookings. All times
are by the database's clock, so that every process shows the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, func, select, text, union_all

from fleet_ett.postgres.queries_booked import total
from fleet_ett.postgres.queries_windows import Pieces
from fleet_ett.postgres.reads import snapshot
from fleet_ett.postgres.rows import exact_rows
from fleet_ett.postgres.tables import (
    attempts,
    counter_totals,
    ingest_counts,
    jobs,
    ledger_deltas,
    marks,
    nodes,
    team_days,
    team_hours,
)
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

    from sqlalchemy import Connection, Engine, Select


# The first job of each cluster and team: one look into the index a pair, not one a job.
_TENANTS = text(
    "WITH RECURSIVE tenants AS ("
    " (SELECT cluster, team, job_id FROM jobs ORDER BY cluster, team, job_id LIMIT 1)"
    " UNION ALL SELECT n.* FROM tenants t CROSS JOIN LATERAL (SELECT j.cluster, j.team, j.job_id FROM jobs j"
    " WHERE (j.cluster, j.team) > (t.cluster, t.team) ORDER BY j.cluster, j.team, j.job_id LIMIT 1) n)"
    " SELECT cluster, team FROM tenants ORDER BY job_id"
)


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
    found = [(cluster, team) for cluster, team in conn.execute(_TENANTS)]
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
    """Productive and unknown GPU time in each window up to `now`; a window begins at a full hour."""
    productive: list[Productive] = []
    unknown: dict[str, Unknown] = {}
    for window, length in WINDOWS.items():
        begin = (now - length) // HOUR_NS * HOUR_NS
        for cluster, team, useful, silent, held in conn.execute(_gpu_time(begin)):
            productive.append(Productive(cluster, team, window, int(useful), int(held)))
            if window == QUALITY_WINDOW:
                had = unknown.get(cluster, Unknown(cluster, 0, 0))
                unknown[cluster] = Unknown(cluster, had.unknown_gpu_ns + int(silent), had.gpu_ns + int(held))
    return productive, list(unknown.values())


def _gpu_time(begin: int) -> Select[Any]:
    """By cluster and team: productive, unknown and all GPU-ns from `begin` (a full hour, ns) on."""
    pieces = Pieces.of(Window(begin))
    keys = ("cluster", "team")
    parts = [
        select(*(table.c[name] for name in (*keys, "productive_gpu_ns", "unknown_gpu_ns", "gpu_ns"))).where(
            *span.holds(period)
        )
        for spans, table, period in (
            (pieces.days, team_days, team_days.c["day_ns"]),
            (pieces.hours, team_hours, team_hours.c["hour_ns"]),
        )
        for span in spans
    ]
    late = ledger_deltas.c
    of_heading = [
        case((late.heading == heading, late.gpu_ns), else_=0) for heading in ("productive", "unknown")
    ]
    parts.append(select(*(late[name] for name in keys), *of_heading, late.gpu_ns).where(*pieces.late()))
    rows = union_all(*parts).subquery("rows")
    sums = (total(rows.c[name]) for name in ("productive_gpu_ns", "unknown_gpu_ns", "gpu_ns"))
    shown = [rows.c[name] for name in keys]
    return select(*shown, *sums).group_by(*shown)


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
