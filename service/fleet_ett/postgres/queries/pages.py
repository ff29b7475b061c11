"""A question in many groups, narrowed to those of its page: jobs, hours and days are too many to look at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, union

from fleet_ett.postgres.queries.booked import job_passes
from fleet_ett.postgres.queries.named import is_one_of
from fleet_ett.postgres.queries.sums import Source
from fleet_ett.postgres.queries.windows import between
from fleet_ett.postgres.rows import after_key
from fleet_ett.postgres.tables import (
    incidents,
    jobs,
    ledger_deltas,
    ledger_lives,
    team_days,
    team_hours,
    weight_days,
    weight_hours,
)
from fleet_ett.postgres.tables.rollups import NAMES
from fleet_ett.reads import DAY_NS, HOUR_NS, Page, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Select

    from fleet_ett.reads import Scope

TEAM = ("cluster", "team")  # whose hours and days are kept together
FEW = 2  # so many jobs for a page of those that lost something to one component
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
    if is_of_periods and not source.of_single_jobs and (len(source.names) <= 1 or source.names == [*TEAM]):
        return _periods(conn, scope, by, page, source)
    if len(by) > len(TEAM) and set(by) <= set(NAMES):
        return _names(conn, scope, by, page)
    return None


def of_component(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> Scope | None:
    """The same of losses by component and more: of the components that come next, for they may have enough groups."""
    if by[:1] != ("component",) or len(by) == 1 or scope.filters.component:
        return None
    first = conn.scalar(_component(None)) if page.after is None else page.after[0]
    if first is None:
        return None
    if by[1] != "job":
        following = conn.scalar(_component(str(first)))
        names = [str(one) for one in (first, following) if one is not None]
        return replace(scope, filters=replace(scope.filters, component=tuple(names)))
    rest = Page(FEW * page.limit, None if page.after is None else page.after[1:])
    part = _jobs(conn, scope, rest) or scope
    return replace(part, filters=replace(part.filters, component=(str(first),)))


def _component(after: str | None) -> Select[Any]:
    """The next of all that ever lost anything."""
    firsts = [
        select(func.min(one.c.component)).where(*([] if after is None else [one.c.component > after]))
        for one in (ledger_lives, ledger_deltas, incidents)
    ]
    return select(func.least(*(one.scalar_subquery() for one in firsts)))


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


def _names(conn: Connection, scope: Scope, by: Sequence[str], page: Page) -> Scope | None:
    """The names of the first groups after the page before."""
    keys = [jobs.c[name] for name in by]
    passing = job_passes(scope.filters, scope.window)
    query = select(*keys).distinct().where(*passing, *overlaps(scope.window), *after_key(keys, page.after))
    found = conn.execute(query.order_by(*keys).limit(page.limit + SLACK)).all()
    if len(found) < page.limit + SLACK:
        return None
    filters = {
        name: tuple({getattr(row, name) for row in found}) for name in by if hasattr(scope.filters, name)
    }
    return replace(scope, filters=replace(scope.filters, **filters))


def _periods(conn: Connection, scope: Scope, by: Sequence[str], page: Page, source: Source) -> Scope | None:
    """The hours or days, and the names, of the first groups after the page before, and one more on each side."""
    names, window = source.names, scope.window
    what, step = ("hour", HOUR_NS) if "hour" in by else ("day", DAY_NS)
    of_teams, of_slices = (team_hours, weight_hours) if what == "hour" else (team_days, weight_days)
    table = of_teams if len(names) > 1 else of_slices
    kept: dict[str, ColumnElement[Any]] = {what: table.c[f"{what}_ns"]}
    kept |= {name: table.c[name if len(names) > 1 else "name"] for name in names}
    late = {what: ledger_deltas.c.hour_ns - ledger_deltas.c.hour_ns % step}
    late |= {name: ledger_deltas.c[name] for name in names}
    low = None if window.start is None else window.start - window.start % step
    parts = []
    for own in (kept, late):
        query = select(*(own[one].label(one) for one in by if one in own)).where(
            *between(own[what], low, window.end),
            *(is_one_of(own[name], source.wanted(name)) for name in names if source.wanted(name)),
        )
        is_slice = own is kept and len(names) <= 1
        parts.append(query.where(table.c.slice == next(iter(names), "")) if is_slice else query)
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
    shown = [name for name in names if name in by and hasattr(scope.filters, name)]
    filters = {name: tuple({getattr(row, name) for row in found}) for name in shown}
    return replace(scope, filters=replace(scope.filters, **filters), window=window)
