"""What the database takes up, counted and measured: rows and bytes by table, by day and by job-day."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.postgres import partitions
from fleet_ett.postgres.tables import metadata
from fleet_ett.postgres.tables.rollups import LABELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

DAY_NS = partitions.DAY_NS
EVENTS = "events"
BY_JOB_AND_TEAM = (
    "job_hours", "job_days", "job_lives", "team_hours", "team_days", "weight_hours", "weight_days",
    "work_lives", "job_totals", "custom_totals",
)  # fmt: skip
ROLLUPS = tuple(
    table.name
    for table in metadata.sorted_tables
    if table.name in BY_JOB_AND_TEAM
    or (set(LABELS) <= set(table.columns.keys()) and table.name not in ("ledger", "segments"))
)
# What a job keeps beside its ledger for as long as that.
BOOKS = ("jobs", "attempts", "attempt_nodes", "held_up", "work", "incidents", "counters")

_SIZES = text(
    "SELECT c.relname AS name, pg_table_size(c.oid) AS rows_bytes, pg_indexes_size(c.oid) AS index_bytes"
    " FROM pg_class c WHERE c.relnamespace = CAST('public' AS regnamespace) AND c.relkind = 'r'"
)
_JOB_DAYS = text("SELECT day_ns, count(*) AS jobs FROM job_days GROUP BY day_ns ORDER BY day_ns")
_KEPT = text("SELECT count(*) FROM job_days WHERE day_ns >= coalesce((SELECT segments_ns FROM retention), 0)")


@dataclass(frozen=True, slots=True)
class Table:
    """One table with its indexes; `bytes` is what both take on disk."""

    name: str
    rows: int
    rows_bytes: int
    index_bytes: int

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.rows_bytes + self.index_bytes


@dataclass(frozen=True, slots=True)
class Day:
    """What one UTC day (number since 1970) brought: raw events with their bytes, and jobs that held hardware."""

    day: int
    events: int
    event_bytes: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Storage:
    """One look. `events_from`, `events_to`: the stamps (ns) that partitions with events span; `days`: whole days."""

    tables: list[Table]
    database_bytes: int
    days: list[Day]
    job_days: int
    job_days_with_segments: int
    events_from: int | None
    events_to: int | None

    def table(self, name: str) -> Table:
        """The table of that name; all partitions of `events` together."""
        return next(one for one in self.tables if one.name == name)

    def bytes_of(self, *names: str) -> int:
        """What these tables take on disk."""
        return sum(one.bytes for one in self.tables if one.name in names)


def added_up(found: Sequence[Storage]) -> Storage:
    """Those of several databases together; at least one."""
    tables, days = defaultdict[str, list[Table]](list), defaultdict[int, list[Day]](list)
    for one in found:
        for table in one.tables:
            tables[table.name].append(table)
        for day in one.days:
            days[day.day].append(day)
    sums = [Table(name, *_sums(rows, "rows", "rows_bytes", "index_bytes")) for name, rows in tables.items()]
    return Storage(
        tables=sorted(sums, key=_largest_first),
        database_bytes=sum(one.database_bytes for one in found),
        days=[Day(day, *_sums(days[day], "events", "event_bytes", "jobs")) for day in sorted(days)],
        job_days=sum(one.job_days for one in found),
        job_days_with_segments=sum(one.job_days_with_segments for one in found),
        events_from=min((one.events_from for one in found if one.events_from is not None), default=None),
        events_to=max((one.events_to for one in found if one.events_to is not None), default=None),
    )


def _sums(found: Sequence[object], *names: str) -> list[int]:
    return [sum(getattr(one, name) for one in found) for name in names]


def _largest_first(table: Table) -> tuple[int, str]:
    return (-table.bytes, table.name)


def measure(conn: Connection, *, now: int) -> Storage:
    """Count and measure everything. Reads every table once: minutes for a large fleet, nobody waits for it."""
    sizes = {row.name: row for row in conn.execute(_SIZES)}
    bounds = partitions.partitions(conn)
    counted = {name: _count(conn, name) for name in (*bounds, *_own_tables(bounds))}
    tables = [
        Table(name, counted[name], sizes[name].rows_bytes, sizes[name].index_bytes)
        for name in counted
        if name not in bounds
    ]
    tables.append(
        Table(
            EVENTS,
            sum(counted[name] for name in bounds),
            sum(sizes[name].rows_bytes for name in bounds),
            sum(sizes[name].index_bytes for name in bounds),
        )
    )
    jobs_of = {row.day_ns // DAY_NS: row.jobs for row in conn.execute(_JOB_DAYS)}
    days = []
    for name, (low, high) in bounds.items():
        if high - low == DAY_NS and high <= now and counted[name]:
            size = sizes[name].rows_bytes + sizes[name].index_bytes
            day = low // DAY_NS
            days.append(Day(day, counted[name], size, jobs_of.get(day, 0)))
    held = [span for name, span in bounds.items() if counted[name]]
    return Storage(
        tables=sorted(tables, key=_largest_first),
        database_bytes=conn.scalar(text("SELECT pg_database_size(current_database())")) or 0,
        days=days,
        job_days=sum(jobs_of.values()),
        job_days_with_segments=conn.scalar(_KEPT) or 0,
        events_from=min((low for low, _ in held), default=None),
        events_to=max((high for _, high in held), default=None),
    )


def _own_tables(bounds: dict[str, tuple[int, int]]) -> list[str]:
    return [
        table.name for table in metadata.sorted_tables if table.name != EVENTS and table.name not in bounds
    ]


def _count(conn: Connection, name: str) -> int:
    return int(conn.scalar(text(f"SELECT count(*) FROM {name}")) or 0)  # noqa: S608 - our own tables
