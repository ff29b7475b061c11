"""The reader's port: what the HTTP side asks of the books, and in which words.

`http/` speaks to a `Reads`, `postgres/` is one; neither knows the other, `app.py` joins them. Rows are
plain dicts whose keys are the columns of the answer: sums as exact Python integers (they may exceed
2^63), times and durations integer nanoseconds, ratios left to the reader's side.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, object]
HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
WEEK_NS = 7 * DAY_NS
# 1970-01-01 was a Thursday; weeks start on Monday, UTC.
WEEK_SHIFT_NS = 3 * DAY_NS

# Ratios are added up as integers of this unit, each rounded: their sum is the same in any order.
RATIO = 2.0**-60

# What a question may be grouped by.
ETT_BY = ("cluster", "team", "model", "framework", "job", "hour", "day", "week")
DIRECT_BY = ("phase", "heading", "repeated")
INDUCED_BY = ("cause", "kind")
LOST_BY = ("component", "owner", *DIRECT_BY, *INDUCED_BY, *ETT_BY)
LEDGER_BY = ("attempt", "heading", "phase", "component", "repeated", "hour", "day")


@dataclass(frozen=True, slots=True)
class Window:
    """[start, end) in ns; None is unbounded."""

    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """Each field lists the values that pass; an empty field passes all."""

    cluster: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    component: tuple[str, ...] = ()
    phase: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """What a question is about: a window and filters."""

    window: Window = field(default_factory=Window)
    filters: Filters = field(default_factory=Filters)

    def by_names(self) -> Scope:
        """The same without the filters that choose parts of a job's time, or jobs by what they booked or suffered."""
        return replace(self, filters=replace(self.filters, component=(), phase=(), cause=()))


@dataclass(frozen=True, slots=True)
class Page:
    """At most `limit` rows after the row whose sort key is `after` (None: from the start)."""

    limit: int = 100
    after: tuple[str | int | bool, ...] | None = None


class ComponentLosses(NamedTuple):
    """What a component lost, and when.

    `held`: rows of `Reads.held` by step, of all that the jobs held; `phases` and `causes`: rows of `lost_time` by phase
    or cause and step; `worst_jobs`: rows of `lost_time` of the jobs that lost most, by whichever of the two views is
    larger (GPU-ns).
    """

    held: list[Row]
    phases: list[Row]
    causes: list[Row]
    worst_jobs: list[Row]


class Reads(Protocol):
    """The books as one consistent snapshot: all answers of one `Reads` are of the same instant.

    Sums in a window raise `Conflict` where it cuts an hour of which only the whole is kept.

    Lists hold at most `page.limit` rows; each row of a paged list carries its sort key under `"_key"`.
    """

    def ett(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """Sums for ETT in groups of `by` (of ETT_BY), one row without `by` even when nothing is booked.

        `ratios`: the jobs' own ETT added up, in units of RATIO.
        """
        ...

    def weights(self, scope: Scope) -> Row:
        """`jobs` that held something, and `ratios`: of all groups together, where a job is in several."""
        ...

    def held(self, scope: Scope, by: Sequence[str]) -> list[Row]:
        """What was held and what of it was productive (GPU-ns) in groups of `by`; without `by` always one row."""
        ...

    def lost_time(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """Direct and induced loss in groups of `by` (of LOST_BY)."""
        ...

    def component(self, scope: Scope, step: str, most: int) -> ComponentLosses:
        """The losses of the component that `scope` filters by, in steps of hour, day or week."""
        ...

    def repeated_work(self, scope: Scope, page: Page) -> tuple[Row, list[Row]]:
        """Sums of replay and of repeated startup (by phase in `phases`), and what a cache would have saved.

        With them the work keys that were done more than once, the dearest first.
        """
        ...

    def jobs(self, scope: Scope, page: Page) -> list[Row]:
        """Jobs with their sums, the newest first."""
        ...

    def job(self, job: str) -> Row | None:
        """One job with the core's summary; None when no event ever named it."""
        ...

    def attempts(self, job: str) -> list[Row]:
        """The attempts of a job in the order of their start."""
        ...

    def goodput(self, job: str) -> Row | None:
        """The job's goodput view: seconds by bucket, and `as_of` (ns); None without books."""
        ...

    def ledger(self, job: str, scope: Scope, by: Sequence[str]) -> list[Row]:
        """A job's cells in groups of `by` (of LEDGER_BY)."""
        ...

    def timeline(self, job: str, scope: Scope, page: Page) -> list[Row]:
        """A job's segments in order of time, clipped to the window."""
        ...

    def segments_since(self, job: str | None = None) -> int:
        """Segments, or those of a job, that ended at this time (ns) or before are past retention; 0: none are."""
        ...

    def incidents(self, scope: Scope, kinds: Sequence[str], page: Page) -> list[Row]:
        """Incidents, the newest first."""
        ...

    def nodes(self, scope: Scope, page: Page) -> list[Row]:
        """Nodes, those first that held others up the longest (GPU time)."""
        ...

    def quarantine(self, window: Window, node: Sequence[str], page: Page) -> list[Row]:
        """Refused events, the newest first."""
        ...

    def owners(self) -> dict[str, str]:
        """Component to owner, where somebody mapped it."""
        ...
