"""A question in many groups, narrowed to those of its page: jobs and hours are too many to look at all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import func, select, union

from fleet_ett.postgres.queries_booked import job_passes
from fleet_ett.postgres.queries_sums import Source
from fleet_ett.postgres.queries_windows import between
from fleet_ett.postgres.rows import after_key
from fleet_ett.postgres.tables import fleet_hours, jobs, ledger_deltas
from fleet_ett.postgres.tables.rollups import NAMES
from fleet_ett.reads import HOUR_NS, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from fleet_ett.reads import Page, Scope

SLACK = 8  # groups beyond the page: a booking may have emptied some, and a window may cut off others


def overlaps(window: Window) -> list[ColumnElement[bool]]:
    """Jobs that have time in the window."""
    out: list[ColumnElement[bool]] = []
    if window.start is not None:
        out.append(func.coalesce(jobs.c.end_ns, jobs.c.as_of_ns) > window.start)
    if window.end is not None:
        out.append(jobs.c.start_ns < window.end)
    return out


def of_page(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> Scope | None:
    """A part of the scope in which the page's groups lie whole, unless all of it has to be read."""
    if by[:1] == ("job",):
        return _jobs(conn, scope, page)
    source = Source(scope, tuple(name for name in NAMES if name in by))
    if "hour" in by and not (source.of_single_jobs or "job" in by or len(source.names) > 1):
        return _hours(conn, scope, by, page, source)
    return None


def _jobs(conn: Connection, scope: Scope, page: Page) -> Scope | None:
    ends = func.coalesce(jobs.c.end_ns, jobs.c.as_of_ns)
    query = (
        select(jobs.c.job)
        .where(
            ends > jobs.c.start_ns,
            *job_passes(scope.filters, scope.window),
            *overlaps(scope.window),
            *([jobs.c.job >= str(page.after[0])] if page.after is not None else []),
        )
        .order_by(jobs.c.job)
        .limit(page.limit + SLACK)
    )
    names = tuple(conn.execute(query).scalars())
    if len(names) < page.limit:
        return None
    return replace(scope, filters=replace(scope.filters, job=names))


def _hours(conn: Connection, scope: Scope, by: Sequence[str], page: Page, source: Source) -> Scope | None:
    """The hours, and the names, of the first groups after the page before, and an hour more on each side."""
    name = next(iter(source.names), "")
    wanted = source.wanted(name)
    window = scope.window
    low = None if window.start is None else window.start - window.start % HOUR_NS
    parts = []
    for table, column in ((fleet_hours, "name"), (ledger_deltas, name)):
        own = {"hour": table.c.hour_ns, **({name: table.c[column]} if name else {})}
        query = select(*(own[one].label(one) for one in by if one in own)).where(
            *between(table.c.hour_ns, low, window.end), *([own[name].in_(wanted)] if wanted else [])
        )
        parts.append(query.where(fleet_hours.c.slice == name) if table is fleet_hours else query)
    groups = union(*parts).subquery("groups")
    if set(groups.c.keys()) != set(by):
        return None
    keys = [groups.c[one] for one in by]
    most = page.limit + SLACK
    found = conn.execute(select(*keys).where(*after_key(keys, page.after)).order_by(*keys).limit(most)).all()
    if len(found) < most:
        return None
    hours = [row.hour for row in found]
    start, end = min(hours) - HOUR_NS, max(hours) + 2 * HOUR_NS
    window = Window(
        start if window.start is None else max(start, window.start),
        end if window.end is None else min(end, window.end),
    )
    filters = scope.filters
    if name in by and hasattr(filters, name):
        filters = replace(filters, **{name: tuple({getattr(row, name) for row in found})})
    return replace(scope, filters=filters, window=window)
