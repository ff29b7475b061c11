"""A question in many groups, narrowed to those of its page: jobs, hours and days are too many to look at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import func, select, union

from fleet_ett.postgres.queries_booked import job_passes
from fleet_ett.postgres.queries_sums import Source
from fleet_ett.postgres.queries_windows import between
from fleet_ett.postgres.rows import after_key
from fleet_ett.postgres.tables import jobs, ledger_deltas, weight_days, weight_hours
from fleet_ett.postgres.tables.rollups import NAMES
from fleet_ett.reads import DAY_NS, HOUR_NS, Window

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
    source = Source.of(scope, by)
    is_of_periods = bool({"hour", "day"} & set(by)) and not {"job", "week"} & set(by)
    if is_of_periods and not source.of_single_jobs and len(source.names) <= 1:
        return _periods(conn, scope, by, page, source)
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


def _periods(conn: Connection, scope: Scope, by: Sequence[str], page: Page, source: Source) -> Scope | None:
    """The hours or days, and the names, of the first groups after the page before, and one more on each side."""
    what, table, step = ("hour", weight_hours, HOUR_NS) if "hour" in by else ("day", weight_days, DAY_NS)
    kept = table.c[f"{what}_ns"]
    name = next(iter(source.names), "")
    wanted = source.wanted(name)
    window = scope.window
    low = None if window.start is None else window.start - window.start % step
    parts = []
    for period, of_name in (
        (kept, table.c.name),
        (ledger_deltas.c.hour_ns - ledger_deltas.c.hour_ns % step, ledger_deltas.c[name or NAMES[0]]),
    ):
        own = {what: period, **({name: of_name} if name else {})}
        query = select(*(own[one].label(one) for one in by if one in own)).where(
            *between(period, low, window.end), *([of_name.in_(wanted)] if wanted else [])
        )
        parts.append(query.where(table.c.slice == name) if period is kept else query)
    groups = union(*parts).subquery("groups")
    if set(groups.c.keys()) != set(by):
        return None
    keys = [groups.c[one] for one in by]
    most = page.limit + SLACK
    found = conn.execute(select(*keys).where(*after_key(keys, page.after)).order_by(*keys).limit(most)).all()
    if len(found) < most:
        return None
    periods = [getattr(row, what) for row in found]
    start, end = min(periods) - step, max(periods) + 2 * step
    window = Window(
        start if window.start is None else max(start, window.start),
        end if window.end is None else min(end, window.end),
    )
    filters = scope.filters
    if name in by and hasattr(filters, name):
        filters = replace(filters, **{name: tuple({getattr(row, name) for row in found})})
    return replace(scope, filters=filters, window=window)
