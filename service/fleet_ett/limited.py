"""The books as some teams may see them: every question is narrowed, other teams' jobs are not there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet_ett.errors import Denied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet_ett.reads import ComponentLosses, Page, Reads, Row, Scope, Window


class TeamReads:
    """`fleet_ett.reads.Reads` of some teams. Who names another team hears `Denied`, whether it exists or not."""

    def __init__(self, books: Reads, teams: tuple[str, ...]) -> None:
        assert teams
        self._books = books
        self._teams = teams
        self._jobs: dict[str, Row | None] = {}

    def ett(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        return self._books.ett(self._mine(scope), by, page)

    def weights(self, scope: Scope) -> Row:
        """See `Reads`."""
        return self._books.weights(self._mine(scope))

    def held(self, scope: Scope, by: Sequence[str]) -> list[Row]:
        """See `Reads`."""
        return self._books.held(self._mine(scope), by)

    def lost_time(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        return self._books.lost_time(self._mine(scope), by, page)

    def component(self, scope: Scope, step: str, most: int) -> ComponentLosses:
        """See `Reads`."""
        return self._books.component(self._mine(scope), step, most)

    def repeated_work(self, scope: Scope, page: Page) -> tuple[Row, list[Row]]:
        """See `Reads`."""
        return self._books.repeated_work(self._mine(scope), page)

    def jobs(self, scope: Scope, page: Page) -> list[Row]:
        """See `Reads`."""
        return self._books.jobs(self._mine(scope), page)

    def job(self, job: str) -> Row | None:
        """See `Reads`; None also for a job of another team."""
        if job not in self._jobs:
            found = self._books.job(job)
            self._jobs[job] = found if found is not None and found["team"] in self._teams else None
        return self._jobs[job]

    def attempts(self, job: str) -> list[Row]:
        """See `Reads`."""
        return self._books.attempts(job) if self.job(job) else []

    def goodput(self, job: str) -> Row | None:
        """See `Reads`."""
        return self._books.goodput(job) if self.job(job) else None

    def ledger(self, job: str, scope: Scope, by: Sequence[str]) -> list[Row]:
        """See `Reads`."""
        return self._books.ledger(job, scope, by) if self.job(job) else []

    def timeline(self, job: str, scope: Scope, page: Page) -> list[Row]:
        """See `Reads`."""
        return self._books.timeline(job, scope, page) if self.job(job) else []

    def segments_since(self, job: str | None = None) -> int:
        """See `Reads`."""
        return self._books.segments_since(job)

    def incidents(self, scope: Scope, kinds: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        return self._books.incidents(self._mine(scope), kinds, page)

    def nodes(self, scope: Scope, page: Page) -> list[Row]:
        """See `Reads`."""
        return self._books.nodes(self._mine(scope), page)

    def quarantine(self, window: Window, node: Sequence[str], page: Page) -> list[Row]:
        """Nothing: refused events are no team's. Raises `Denied`."""
        del window, node, page
        msg = "refused events are of the whole fleet, and the token reads only some teams"
        raise Denied(msg)

    def owners(self) -> dict[str, str]:
        """See `Reads`."""
        return self._books.owners()

    def _mine(self, scope: Scope) -> Scope:
        asked = scope.filters.team
        if not set(asked) <= set(self._teams):
            msg = "the token does not read all of these teams"
            raise Denied(msg)
        return replace(scope, filters=replace(scope.filters, team=asked or self._teams))
