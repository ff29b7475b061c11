"""What one component lost, as one statement: its parts read the edges of the window once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, literal, select, union_all
from sqlalchemy.dialects.postgresql import JSONB

from fleet_ett.postgres.queries.fleet import held
from fleet_ett.postgres.queries.kept import statement
from fleet_ett.postgres.queries.losses import is_shown, lost, page_of_losses, unknown_to, worst_jobs
from fleet_ett.reads import ComponentLosses, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import CompoundSelect, Connection, Select

    from fleet_ett.reads import Row, Scope

EVERY = Page(10**9)  # hours of years
JOB = ("job",)


def read_component(conn: Connection, scope: Scope, step: str, most: int) -> ComponentLosses:
    """See `Reads`."""
    query, values = statement(_together, scope, (step,), most)
    found: dict[str, list[Row]] = {"held": [], "phase": [], "cause": [], "worst": []}
    for told in conn.execute(query, values).mappings():
        found[told["part"]].append(told["row"])
    phases, causes = ([row | unknown_to(scope, (by, step)) for row in found[by]] for by in ("phase", "cause"))
    return ComponentLosses(found["held"], phases, causes, _worst(conn, scope, found["worst"], most))


def _together(scope: Scope, by: Sequence[str], most: int) -> CompoundSelect[Any]:
    """Which part, and its rows as JSON."""
    parts: dict[str, Select[Any]] = {"held": held(scope.by_names(), by)}
    for name in ("phase", "cause"):
        if is_shown(scope, (name,)):
            parts[name] = lost(scope, (name, *by), EVERY)
    if is_shown(scope, JOB):
        parts["worst"] = worst_jobs(scope, most)
    rows = {name: query.subquery(f"{name}_rows") for name, query in parts.items()}  # not named as a column
    as_json = {name: func.to_jsonb(part.table_valued(), type_=JSONB) for name, part in rows.items()}
    return union_all(
        *(select(literal(name).label("part"), row.label("row")) for name, row in as_json.items())
    )


def _worst(conn: Connection, scope: Scope, asked: list[Row], most: int) -> list[Row]:
    """What each of these jobs lost in the window, the dearest first."""
    if not asked:
        return []
    own = replace(scope, filters=replace(scope.filters, job=tuple(str(row["job"]) for row in asked)))
    rows = [row | unknown_to(scope, JOB) for row in page_of_losses(conn, own, JOB, EVERY)]
    rows.sort(key=lambda row: (-max(_gpu_ns(row, "direct"), _gpu_ns(row, "induced")), str(row["job"])))
    return rows[:most]


def _gpu_ns(row: Row, view: str) -> int:
    return int(str(row[f"{view}_gpu_ns"] or 0))
