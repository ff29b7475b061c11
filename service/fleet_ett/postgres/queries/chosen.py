"""Jobs chosen by what they booked or suffered: asked for once, and then a list.

A question that is asked with a list is planned for as many jobs as there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import ARRAY, BigInteger, and_, any_, bindparam, column, false, func, or_, select

from fleet_ett.postgres.queries.booked import job_passes
from fleet_ett.postgres.tables import jobs
from fleet_ett.reads import Filters

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import CTE, BindParameter, ColumnElement, Connection, Select

    from fleet_ett.postgres.queries.lives import Lives
    from fleet_ett.reads import Scope

BY_JOBS = ("component", "phase", "cause")  # filters that choose jobs where rows do not have them
BY_NAMES = tuple(name for name in Filters.__dataclass_fields__ if name not in BY_JOBS)


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of jobs, each once, by how `Lives` reads them."""

    whole: list[int]
    cut: list[int]

    def __len__(self) -> int:
        return len(self.whole) + len(self.cut)

    def values(self) -> dict[str, object]:
        """What a statement with `Jobs` is told."""
        lists = {"every": self.whole + self.cut, "whole": self.whole, "cut": self.cut}
        return {f"jobs_{name}": ids for name, ids in lists.items()}


@dataclass(frozen=True, slots=True)
class Jobs:
    """The same as a statement knows them, by names."""

    every: CTE
    whole: CTE
    cut: CTE

    @classmethod
    def named(cls) -> Jobs:
        """What they are is told with the values."""
        return cls(*(_listed(name) for name in ("every", "whole", "cut")))


@dataclass(frozen=True, slots=True)
class ChosenJobs(Filters):
    """Filters by names, and the jobs that passed the others."""

    jobs: Jobs | None = None


def choose(conn: Connection, scope: Scope, lives: Lives) -> tuple[Ids, Ids] | None:
    """The jobs that pass all filters, and those that pass the names alone; None where names are all there is."""
    filters, window = scope.filters, scope.window
    if not any(getattr(filters, name) for name in BY_JOBS):
        return None
    meant = job_passes(replace(filters, **dict.fromkeys(BY_NAMES, ())), window)
    there = [] if window.start is None else [or_(jobs.c.end_ns > window.start, jobs.c.end_ns.is_(None))]
    there += [jobs.c.start_ns.is_not(None)] if window.end is None else [jobs.c.start_ns < window.end]
    is_whole = func.coalesce(lives.whole(), false()) if lives.used else false()  # a live job has no end
    kinds = (and_(*meant).label("meant"), is_whole.label("whole"))
    named = job_passes(scope.by_names().filters, window)
    rows = select(jobs.c.job_id, *kinds).where(*named, *there).subquery("rows")
    of_kind = [rows.c[kind.name] for kind in kinds]
    found = conn.execute(select(*of_kind, func.array_agg(rows.c.job_id).label("ids")).group_by(*of_kind))
    ids = {(row.meant, row.whole): row.ids for row in found}
    passed, others = (Ids(ids.get((one, True), []), ids.get((one, False), [])) for one in (True, False))
    return passed, others


def only(scope: Scope, chosen: Jobs) -> Scope:
    """The scope of these jobs instead of those that pass its filters by what happened."""
    names = {name: getattr(scope.filters, name) for name in BY_NAMES}
    return replace(scope, filters=ChosenJobs(**names, jobs=chosen))


def is_listed(job_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether a job is one of these, by its id, for rows that are looked up job by job."""
    return job_id == any_(_ids("every"))


def _listed(name: str) -> CTE:
    told = func.unnest(_ids(name)).table_valued(column("job_id", BigInteger))
    return select(told.render_derived().c.job_id).cte(f"jobs_{name}")


def _ids(name: str) -> BindParameter[Any]:
    return bindparam(f"jobs_{name}", type_=ARRAY(BigInteger))


def only_of(query: Select[Any], job_id: ColumnElement[int], chosen: CTE) -> Select[Any]:
    """The rows of these jobs: joined, for a join with a list is planned for as many as it holds."""
    return query.join(chosen, chosen.c.job_id == job_id)
