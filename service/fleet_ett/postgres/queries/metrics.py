"""One look at the books for the Prometheus page.

Counters come from `counter_totals`, which only ever rise; gauges of a window from the roll-ups. How long it takes
goes with the number of series, and not with jobs, nodes or history. All times are by the database's clock, so that
every process shows the same.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import case, func, select, text, union_all

from fleet_ett.postgres.queries.booked import total
from fleet_ett.postgres.queries.windows import Pieces
from fleet_ett.postgres.reads import snapshot
from fleet_ett.postgres.rows import exact_rows
from fleet_ett.postgres.tables import (
    ingest_counts,
    ledger_deltas,
    marks,
    team_days,
    team_hours,
)
from fleet_ett.readings import (
    BUCKETS_S,
    DURATIONS,
    HELD,
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


_TENANTS = text("SELECT cluster, team FROM tenants ORDER BY since_ns, cluster, team")
# As text: the same labels come at every scrape, and numbers beyond 64 bits.
_COUNTS = text(
    "SELECT name, CAST(labels AS text), CAST(value AS text) FROM counter_totals"
    " UNION ALL SELECT name, CAST(labels AS text), CAST(value AS text) FROM counter_deltas"
)
KEPT_BESIDE = {*DURATIONS, *HELD}  # not counters of the page
_NEWEST = select(func.max(ingest_counts.c.last_ns)).where(
    ingest_counts.c.result.in_(("accepted", "conflict"))
)


def read_readings(engine: Engine) -> Readings:
    """One consistent look. Raises `Unavailable` when the database cannot be reached."""
    with snapshot(engine) as conn:
        now = conn.execute(text("SELECT (extract(epoch FROM now()) * 1000000000)::bigint")).scalar_one()
        counts = _counts(conn)
        productive, unknown = _windows(conn, now)
        return Readings(
            tenants=list(dict.fromkeys((cluster, team) for cluster, team in conn.execute(_TENANTS))),
            counts=[count for count in counts if count.metric not in KEPT_BESIDE],
            durations=_durations([count for count in counts if count.metric in DURATIONS]),
            productive=productive,
            running=_running(counts),
            unknown=unknown,
            events=_events(conn),
            ingest_lag_ns=_age(conn, now, _NEWEST),
            attribution_lag_ns=_age(conn, now, select(func.min(marks.c.marked_ns))) or 0,
        )


def _counts(conn: Connection) -> list[Count]:
    sums: dict[tuple[str, str], int] = {}
    for name, labels, value in conn.execute(_COUNTS):
        sums[name, labels] = sums.get((name, labels), 0) + int(value)
    return [Count(name, _read(labels), value) for (name, labels), value in sums.items()]


@lru_cache(maxsize=20_000)
def _read(labels: str) -> dict[str, str]:
    """Labels, to be looked at only."""
    told: dict[str, str] = json.loads(labels)
    return told


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


def _running(counts: list[Count]) -> list[Running]:
    held: dict[tuple[str, str], dict[str, int]] = {}
    for one in counts:
        if one.metric in HELD:
            held.setdefault((one.labels["cluster"], one.labels["team"]), {})[one.metric] = one.value
    return [Running(*tenant, *(amounts.get(name, 0) for name in HELD)) for tenant, amounts in held.items()]


def _events(conn: Connection) -> dict[str, int]:
    query = select(ingest_counts.c.result, total(ingest_counts.c.n).label("n")).group_by(
        ingest_counts.c.result
    )
    return {str(row["result"]): int(str(row["n"])) for row in exact_rows(conn, query)}


def _age(conn: Connection, now: int, query: Select[Any]) -> int | None:
    moment: int | None = conn.scalar(query)
    return None if moment is None else now - moment
