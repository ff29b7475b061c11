"""How many jobs held something, and the mean of their ratios, by group: what no sum of time tells.

Whole hours and days as groups are kept (`weights.py`); other groups put their jobs together from the roll-ups by job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Float,
    Numeric,
    Text,
    and_,
    cast,
    column,
    func,
    literal,
    or_,
    select,
    text,
    true,
    union_all,
)

from fleet_ett.postgres.queries.booked import TIMES, job_passes, period, signed
from fleet_ett.postgres.queries.job_sums import job_sums
from fleet_ett.postgres.queries.named import is_one_of
from fleet_ett.postgres.queries.sums import Source, lives_of
from fleet_ett.postgres.queries.windows import between
from fleet_ett.postgres.tables import (
    job_days,
    job_hours,
    job_lives,
    jobs,
    ledger_deltas,
    weight_days,
    weight_hours,
)
from fleet_ett.postgres.tables.rollups import NAMES
from fleet_ett.postgres.weights import changed
from fleet_ett.reads import RATIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Select, Subquery, Table

    from fleet_ett.postgres.queries.headings import Signed
    from fleet_ett.postgres.queries.lives import Lives
    from fleet_ett.postgres.queries.windows import Pieces, Span
    from fleet_ett.reads import Scope

FINE = 1 / RATIO  # as in `weights.py`
WEIGHTS = ("jobs", "ratios")
RATIO_OF = ("wall_ns", "productive_wall_ns")


def weights(scopes: Sequence[Signed], by: Sequence[str], pieces: Pieces) -> Subquery:
    """`jobs` and `ratios`, the sum of their ratios (units of 2^-60), by group; several rows may be of one group."""
    parts = [signed(part, sign, WEIGHTS) for sign, scope in scopes for part in _parts(scope, by, pieces)]
    return union_all(*parts).subquery("weights")


def _parts(scope: Scope, by: Sequence[str], pieces: Pieces) -> list[Select[Any]]:
    spans, kept, by_job = _whole_periods(pieces, by)
    source, lives = Source.of(scope, by), lives_of(scope, by)
    parts = []
    if lives.running:
        parts.append(_summed(scope, by, _whole_once(lives), once=True))
    if not lives.are_all:
        rest = job_sums(pieces, lives, source.chosen, only_cut=True, left_out=spans)
        parts.append(_summed(scope, by, rest, once=False))
    if spans:
        if source.of_single_jobs or len(source.names) > 1:
            parts.append(_summed(scope, by, _periods_once(spans, by_job), once=True))
        else:
            parts += _told(scope, by, spans, kept, next(iter(source.names), ""))
    return parts


def _whole_periods(pieces: Pieces, by: Sequence[str]) -> tuple[tuple[Span, ...], Table, Table]:
    """The hours, or the days, that are groups of `by` and lie whole in the window; where they are kept."""
    if "hour" in by:
        return pieces.hours, weight_hours, job_hours
    return (pieces.days if "day" in by else ()), weight_days, job_days


def _summed(scope: Scope, by: Sequence[str], rows: Subquery, *, once: bool) -> Select[Any]:
    """Jobs and the sum of their ratios from rows by job; `once`: each job is there once a group."""
    passing = job_passes(scope.filters, scope.window)
    times = [name for name in by if name in TIMES]
    moments = [period(rows.c.hour_ns, name).label(name) for name in times]
    by_job = select(*moments, rows.c.job_id, *(rows.c[name] for name in RATIO_OF)).subquery()
    if not once:
        amounts = [cast(func.sum(by_job.c[name]), Float).label(name) for name in RATIO_OF]
        own = [by_job.c[name] for name in (*times, "job_id")]
        by_job = select(*own, *amounts).group_by(*own).subquery()
    keys = [(by_job if name in TIMES else jobs).c[name] for name in by]
    useful, wall = (cast(by_job.c[name], Float) for name in reversed(RATIO_OF))
    ratio = useful / func.nullif(wall, 0, type_=Float)
    held, whole_ratio = func.count().filter(by_job.c.wall_ns > 0), cast(ratio * FINE, BigInteger)
    summed: Select[Any] = select(
        *keys, held.label("jobs"), func.sum(whole_ratio).label("ratios")
    ).select_from(by_job)
    if passing or len(times) < len(by):
        summed = summed.join(jobs, jobs.c.job_id == by_job.c.job_id).where(*passing)
    summed = Source(scope, ()).only_chosen(summed, by_job.c.job_id)
    return summed.group_by(*keys) if by else summed


def _told(
    scope: Scope, by: Sequence[str], spans: Sequence[Span], kept: Table, name: str
) -> list[Select[Any]]:
    """The same from what is kept, and from what bookings changed since."""
    own = kept.c["hour_ns" if kept is weight_hours else "day_ns"]
    parts = [
        select(own.label("hour_ns"), kept.c.name, kept.c.jobs, kept.c.ratios).where(
            kept.c.slice == name, *span.holds(own)
        )
        for span in spans
    ]
    late = _late(kept)
    lying = or_(*(and_(true(), *between(late.c.period, one.low, one.high)) for one in spans))
    of_name = late.c[name] if name else literal("", Text)
    parts.append(
        select(late.c.period.label("hour_ns"), of_name.label("name"), late.c.jobs, late.c.ratios).where(lying)
    )
    wanted, out = Source(scope, ()).wanted(name), []
    for part in parts:
        rows = part.subquery()
        keys = [(period(rows.c.hour_ns, one) if one in TIMES else rows.c.name).label(one) for one in by]
        out.append(
            select(*keys, rows.c.jobs, rows.c.ratios).where(
                *([is_one_of(rows.c.name, wanted)] if wanted else [])
            )
        )
    return out


def _late(kept: Table) -> Subquery:
    """What is not folded yet: period, NAMES, jobs, ratios."""
    names = [column(name, Text) for name in NAMES]
    columns: list[ColumnElement[Any]] = [
        column("period", BigInteger), *names, column("jobs", BigInteger), column("ratios", Numeric),
    ]  # fmt: skip
    return text(changed(kept.name, "ledger_deltas")).columns(*columns).subquery("late")


def _periods_once(spans: Sequence[Span], table: Table) -> Subquery:
    """The rows of a roll-up by job in these periods with what is not folded yet, each job and period once."""
    own, step = table.c["hour_ns" if table is job_hours else "day_ns"], spans[0].step
    held = or_(*(and_(true(), *one.holds(own)) for one in spans))
    kept = select(table.c.job_id, own.label("hour_ns"), *(table.c[name] for name in RATIO_OF)).where(held)
    late_period = ledger_deltas.c.hour_ns - ledger_deltas.c.hour_ns % step
    late = select(ledger_deltas.c.job_id, late_period.label("hour_ns"), *_late_amounts())
    late = late.where(
        or_(*(and_(true(), *between(ledger_deltas.c.hour_ns, one.low, one.high)) for one in spans))
    )
    return _once(kept, late.group_by(ledger_deltas.c.job_id, late_period))


def _whole_once(lives: Lives) -> Subquery:
    """The jobs that are read as a whole with what of them is not folded yet, each once."""
    moment = literal(0, BigInteger).label("hour_ns")
    kept = select(job_lives.c.job_id, moment, *(job_lives.c[name] for name in RATIO_OF))
    late = select(ledger_deltas.c.job_id, moment, *_late_amounts()).group_by(ledger_deltas.c.job_id)
    return _once(lives.only_whole(kept, job_lives), lives.only_whole(late, ledger_deltas))


def _late_amounts() -> list[ColumnElement[Any]]:
    productive = ledger_deltas.c.heading == "productive"
    wall_ns = ledger_deltas.c.wall_ns
    amounts = (func.sum(wall_ns), func.coalesce(func.sum(wall_ns).filter(productive), 0))
    return [cast(one, BigInteger).label(name) for name, one in zip(RATIO_OF, amounts, strict=True)]


def _once(told: Select[Any], changes: Select[Any]) -> Subquery:
    """job_id, hour_ns and RATIO_OF of either or both."""
    kept, late = told.subquery("kept"), changes.subquery("late")
    keys = ("job_id", "hour_ns")
    same = and_(*(kept.c[name] == late.c[name] for name in keys))
    either = [func.coalesce(kept.c[name], late.c[name]).label(name) for name in keys]
    sums = [
        (func.coalesce(kept.c[name], 0) + func.coalesce(late.c[name], 0)).label(name) for name in RATIO_OF
    ]
    return select(*either, *sums).join_from(kept, late, same, full=True).subquery("once")
