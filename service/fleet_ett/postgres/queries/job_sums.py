"""What single jobs held in a window, without its labels: from as few rows as will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, ColumnElement, Select, case, cast, literal, select, union_all

from fleet_ett.postgres.queries.booked import signed
from fleet_ett.postgres.queries.lives import beside_jobs
from fleet_ett.postgres.tables import job_days, job_hours, job_lives, job_totals, ledger_deltas
from fleet_ett.postgres.tables.rollups import JOB_AMOUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import FromClause, Subquery, Table

    from fleet_ett.postgres.queries.lives import Lives
    from fleet_ett.postgres.queries.windows import Chosen, Pieces, Span


def job_sums(
    pieces: Pieces,
    lives: Lives,
    chosen: Chosen = (),
    *,
    only_cut: bool = False,
    left_out: Sequence[Span] = (),
) -> Subquery:
    """job_id, hour_ns and JOB_AMOUNTS of all jobs in the window, or of those that `chosen` holds for.

    Several rows may be of one job and time; `hour_ns` is the day of what is of a whole day, and 0 of what is of a whole
    job. `only_cut`, `left_out`: the caller adds whole jobs, and these periods, by himself.
    """
    if lives.running:
        return _running_sums(pieces, lives, chosen, only_cut=only_cut)
    parts: list[Select[Any]] = []
    for spans, table, period in (
        (pieces.days, job_days, job_days.c["day_ns"]),
        (pieces.hours, job_hours, job_hours.c["hour_ns"]),
    ):
        parts += [
            signed(_amounts(table, period, chosen).where(*span.holds(period)), span.sign, JOB_AMOUNTS)
            for span in spans
            if span not in left_out
        ]
    parts += [select(rows.c.job_id, rows.c.hour_ns, *_by_heading(rows)) for rows in pieces.edges]
    parts.append(_late_amounts(chosen).where(*pieces.late(without=left_out)))
    return union_all(*parts).subquery("job_sums")


def _running_sums(pieces: Pieces, lives: Lives, chosen: Chosen, *, only_cut: bool) -> Subquery:
    """The same from lives and running totals."""
    nowhere = literal(0, BigInteger)
    cut = [lives.cut()] if only_cut else []
    parts = [beside_jobs(_amounts(job_lives, nowhere, chosen), job_lives).where(*lives.lives(), *cut)]
    for mark, whose, sign in lives.totals():
        of_mark = beside_jobs(_amounts(job_totals, nowhere, chosen), job_totals)
        parts.append(signed(of_mark.where(job_totals.c.hour_ns == mark, whose), sign, JOB_AMOUNTS))
    for rows, whose in lives.edges(pieces):
        parts.append(
            beside_jobs(select(rows.c.job_id, rows.c.hour_ns, *_by_heading(rows)), rows).where(whose)
        )
    parts.append(beside_jobs(_late_amounts(chosen), ledger_deltas).where(*lives.late_running(), *cut))
    return union_all(*parts).subquery("job_sums")


def _amounts(table: Table, hour: ColumnElement[int], chosen: Chosen) -> Select[Any]:
    columns = [table.c.job_id, hour.label("hour_ns"), *(table.c[name] for name in JOB_AMOUNTS)]
    return select(*columns).where(*(one(table.c.job_id) for one in chosen))


def _late_amounts(chosen: Chosen) -> Select[Any]:
    late = select(ledger_deltas.c.job_id, ledger_deltas.c.hour_ns, *_by_heading(ledger_deltas))
    return late.where(*(one(ledger_deltas.c.job_id) for one in chosen))


def _by_heading(table: FromClause) -> list[ColumnElement[Any]]:
    """JOB_AMOUNTS of rows that have a heading."""
    out: list[ColumnElement[Any]] = []
    for name in JOB_AMOUNTS:
        heading = next((one for one in ("productive", "unknown") if one in name), None)
        if heading is None:
            out.append(table.c[name])
        else:
            amount = table.c[name.replace(f"{heading}_", "")]
            out.append(case((table.c.heading == heading, amount), else_=cast(0, BigInteger)).label(name))
    return out
