"""What a reader may ask: windows, filters, groups and pages, parsed and checked before any query.

A parameter that a path does not know is refused: a misspelt filter must not answer for the whole
fleet. Filters take several values (`team=a&team=b`: either).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fleet_ett.errors import Invalid
from fleet_ett.http.stamps import parse_stamp
from fleet_ett.reads import Filters, Scope, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_VALUES = 100
# What Postgres cannot hold cannot be a name either.
Name = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")]
Names = Annotated[list[Name], Field(max_length=MAX_VALUES)]
FROM = "Start of the window, inclusive: RFC 3339 with a zone, or ns since the epoch."
TO = "End of the window, exclusive: RFC 3339 with a zone, or ns since the epoch."


class WindowQuery(BaseModel):
    """`from` and `to`: [from, to), each optional."""

    model_config = ConfigDict(extra="forbid")

    start: str | None = Field(None, alias="from", description=FROM, examples=["2026-03-02T12:00:00Z"])
    end: str | None = Field(None, alias="to", description=TO, examples=["1772456400000000000"])

    def window(self) -> Window:
        """The window in ns. Raises `Invalid`."""
        start = None if self.start is None else parse_stamp("from", self.start)
        end = None if self.end is None else parse_stamp("to", self.end)
        if start is not None and end is not None and end < start:
            msg = "to must not lie before from"
            raise Invalid(msg)
        return Window(start, end)


class PartQuery(WindowQuery):
    """A window, and parts of a job's time."""

    component: Names = Field([], description="Only time that these components own.", examples=[["compiler"]])
    phase: Names = Field([], description="Only these phases.", examples=[["compile_cold"]])

    def scope(self) -> Scope:
        """Window and filters."""
        return Scope(self.window(), Filters(component=tuple(self.component), phase=tuple(self.phase)))


class ScopeQuery(WindowQuery):
    """A window and all filters.

    On rows that have a component, a phase or a cause these filter the rows; elsewhere they choose the
    jobs that booked such time, or had such an incident, in the window.
    """

    cluster: Names = Field([], description="Only jobs of these clusters (empty text: unknown).")
    team: Names = Field([], description="Only jobs of these teams.")
    model: Names = Field([], description="Only jobs of these models.")
    job: Names = Field([], description="Only these jobs.")
    component: Names = Field([], description="Only these components, or jobs that lost time to them.")
    phase: Names = Field([], description="Only these phases, or jobs that spent time in them.")
    cause: Names = Field([], description="Only incidents of these causes, or jobs that had one.")

    def scope(self) -> Scope:
        """Window and filters."""
        names = Filters.__dataclass_fields__
        return Scope(self.window(), Filters(**{name: tuple(getattr(self, name)) for name in names}))


class _Paged(BaseModel):
    limit: int = Field(100, ge=1, le=1000, description="Rows on a page.")
    cursor: str | None = Field(None, description="`next` of the page before.", max_length=4096)


class PagedQuery(ScopeQuery, _Paged):
    """A window, all filters, and a page."""


class GroupedQuery(PagedQuery):
    """A window, all filters, groups and a page."""

    by: list[str] = Field(
        [], description="Groups, comma-separated: by=cluster,day.", examples=[["cluster,day"]]
    )


class TimelineQuery(PartQuery, _Paged):
    """A window, parts of a job's time, and a page."""


class LedgerQuery(PartQuery):
    """A window, parts of a job's time, and groups."""

    by: list[str] = Field([], description="Groups: attempt, phase, component, heading, repeated, hour, day.")


class IncidentsQuery(PagedQuery):
    """A window, all filters, kinds of incidents, and a page."""

    kind: Names = Field(
        [], description="infra, user, planned, unknown; all when absent.", examples=[["infra"]]
    )


class ComponentQuery(ScopeQuery):
    """A window and filters of one component's page."""

    trend: str = Field("day", pattern="^(hour|day|week)$", description="Step of the trend: hour, day, week.")
    worst: int = Field(10, ge=1, le=100, description="How many of the worst jobs and nodes.")


class QuarantineQuery(WindowQuery, _Paged):
    """When it was received, from which node, and a page."""

    node: Names = Field([], description="Only events that these nodes sent.")


def parse_by(values: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Groups from `by=a,b` or `by=a&by=b`, each once. Raises `Invalid` naming what is known."""
    names = [name.strip() for value in values for name in value.split(",") if name.strip()]
    for name in names:
        if name not in known:
            msg = f"by must be of {', '.join(known)}, not {name[:60]!r}"
            raise Invalid(msg)
    return tuple(dict.fromkeys(names))
