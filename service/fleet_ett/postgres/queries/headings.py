"""Sums by group and heading: of the fleet from its cells, of jobs one by one from their wide rows.

A wide row has the headings of the contract as columns, so that a job is one row where it would be a dozen; custom
headings come from its ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Numeric, Text, column, func, literal, literal_column, null, select, true, union_all
from sqlalchemy.dialects.postgresql import array

from fleet_ett.core.taxonomy import HEADINGS
from fleet_ett.postgres.queries.booked import dimensions, signed, total
from fleet_ett.postgres.queries.sums import Source, cells, lives_of
from fleet_ett.postgres.tables import (
    custom_totals,
    job_days,
    job_lives,
    job_totals,
    ledger_days,
    ledger_lives,
)
from fleet_ett.postgres.tables.rollups import AMOUNTS, CUSTOM, WIDE_AMOUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import FromClause, Select, Subquery

    from fleet_ett.postgres.queries.windows import Pieces
    from fleet_ett.reads import Scope

    Signed = tuple[int, Scope]  # 1: added, -1: taken away

HELD = AMOUNTS[:2]
OF_HEADINGS = tuple(name for name in WIDE_AMOUNTS if name not in HELD)  # they are what these come to


def sums_by_heading(scopes: Sequence[Signed], by: Sequence[str], pieces: Pieces) -> Subquery:
    """The names of `by`, heading and AMOUNTS of all scopes together, each heading of a group once.

    What of other headings than productive is settled may stand in a row without a heading; then that of a heading of
    which nothing is left is what the other row has too much.
    """
    parts = [signed(part, sign, AMOUNTS) for sign, scope in scopes for part in _parts(scope, by, pieces)]
    rows = union_all(*parts).subquery("rows")
    keys = [rows.c[name] for name in (*by, "heading")]
    summed = select(*keys, *(total(rows.c[name]).label(name) for name in AMOUNTS)).group_by(*keys)
    return summed.subquery("by_heading")


def _parts(scope: Scope, by: Sequence[str], pieces: Pieces) -> list[Select[Any]]:
    """Rows of one scope; several may be of one group and heading."""
    source, lives = Source.of(scope, by), lives_of(scope, by)
    if not source.of_single_jobs and (len(source.names) <= 1 or not lives.running):
        return [_named(cells(scope, by, pieces=pieces), by)]
    is_custom = literal_column("heading").like(literal_column(f"'{CUSTOM}%'"))  # as in the index
    if lives.running:
        rest = source.beside_running(pieces, lives)
        wide = [*source.by_running(lives, (job_lives, job_totals), OF_HEADINGS)]
        of_life, *cut = source.by_running(lives, (ledger_lives, custom_totals), ("heading", *HELD))
        custom = [of_life.where(is_custom), *cut]
    else:
        rest = source.rest(pieces, lives)
        wide = [
            source.only_chosen(one, job_days.c.job_id)
            for one in source.by_days(pieces, job_days, OF_HEADINGS)
        ]
        cells_of_days = source.by_days(pieces, ledger_days, ("heading", *HELD))
        custom = [source.only_chosen(one, ledger_days.c.job_id).where(is_custom) for one in cells_of_days]
    parts = [_summed(union_all(*rest).subquery("rest"), by)]
    if wide:
        parts.append(_narrow(union_all(*wide).subquery("wide"), by))
        parts.append(_summed(union_all(*custom).subquery("custom"), by))
    return parts


def _named(rows: FromClause, by: Sequence[str]) -> Select[Any]:
    return select(*dimensions(rows, by), rows.c.heading, *(rows.c[name] for name in AMOUNTS))


def _summed(rows: FromClause, by: Sequence[str]) -> Select[Any]:
    """Rows that have a heading, added up by themselves: beside others they are of a wider type."""
    keys = [*dimensions(rows, by), rows.c.heading]
    sums = (total(rows.c[name]) if name in rows.c else literal(0, Numeric) for name in AMOUNTS)
    return select(*keys, *(one.label(name) for name, one in zip(AMOUNTS, sums, strict=True))).group_by(*keys)


def _narrow(wide: FromClause, by: Sequence[str]) -> Select[Any]:
    """Wide rows added up by group, and then a row each heading; the last one is what else is settled."""
    keys = dimensions(wide, by)
    sums = select(*keys, *(total(wide.c[name]).label(name) for name in OF_HEADINGS))
    summed = (sums.group_by(*keys) if by else sums).subquery("summed")
    of_heading: dict[str, list[Any]] = {"heading": [*HEADINGS, null()]}
    for name in HELD:
        settled, useful = summed.c[f"settled_{name}"], summed.c[f"settled_productive_{name}"]
        of_heading[name] = [*(summed.c[f"{one}_{name}"] for one in HEADINGS), 0]
        of_heading[f"settled_{name}"] = [
            *(useful if one == "productive" else 0 for one in HEADINGS),
            settled - useful,
        ]
    columns = [column(name, Text if name == "heading" else Numeric) for name in of_heading]
    arrays = (array(of_heading[one.name], type_=one.type) for one in columns)
    rows = func.unnest(*arrays).table_valued(*columns, name="of_heading").render_derived()
    names = [summed.c[name] for name in by]
    return select(*names, rows.c.heading, *(rows.c[name] for name in AMOUNTS)).join_from(summed, rows, true())
