"""The books of several servers for readers: one job from its owner, everything else from the joined view.

Repeated work is never one job's alone: another job may have done it before.

A server that is away makes what needs it `Unavailable`: there are no figures of a part of the fleet.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from fleet_ett.errors import EttError, Unavailable
from fleet_ett.postgres.queries.metrics import read_readings
from fleet_ett.postgres.readiness import check_ready
from fleet_ett.postgres.reads import PostgresReads, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from fleet_ett.core.policy import Policy
    from fleet_ett.postgres.shards.servers import Fleet
    from fleet_ett.readings import Readings
    from fleet_ett.reads import Page, Row, Scope


_AWAY = re.compile(r'server "ett_(\d+)"')


class FleetReads(PostgresReads):
    """`fleet_ett.reads.Reads`: of all jobs on one connection, of one job on its owner's."""

    def __init__(self, conn: Connection, policy: Policy, fleet: Fleet, stack: ExitStack) -> None:
        super().__init__(conn, policy)
        self._fleet = fleet
        self._stack = stack
        self._owners: dict[int, PostgresReads] = {}

    def ett(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        one = self._sole(scope)
        return super().ett(scope, by, page) if one is None else one.ett(scope, by, page)

    def weights(self, scope: Scope) -> Row:
        """See `Reads`."""
        one = self._sole(scope)
        return super().weights(scope) if one is None else one.weights(scope)

    def held(self, scope: Scope, by: Sequence[str]) -> list[Row]:
        """See `Reads`."""
        one = self._sole(scope)
        return super().held(scope, by) if one is None else one.held(scope, by)

    def lost_time(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        one = None if "owner" in by else self._sole(scope)  # owners are at home
        return super().lost_time(scope, by, page) if one is None else one.lost_time(scope, by, page)

    def incidents(self, scope: Scope, kinds: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        one = self._sole(scope)
        if one is None:
            return super().incidents(scope, kinds, page)
        owners = self.owners()
        rows = one.incidents(scope, kinds, page)
        return [row | {"owner": owners.get(str(row["component"]), row["component"])} for row in rows]

    def job(self, job: str) -> Row | None:
        """See `Reads`."""
        return self._of(job).job(job)

    def attempts(self, job: str) -> list[Row]:
        """See `Reads`."""
        return self._of(job).attempts(job)

    def goodput(self, job: str) -> Row | None:
        """See `Reads`."""
        return self._of(job).goodput(job)

    def ledger(self, job: str, scope: Scope, by: Sequence[str]) -> list[Row]:
        """See `Reads`."""
        return self._of(job).ledger(job, scope, by)

    def timeline(self, job: str, scope: Scope, page: Page) -> list[Row]:
        """See `Reads`."""
        return self._of(job).timeline(job, scope, page)

    def segments_since(self, job: str | None = None) -> int:
        """See `Reads`."""
        return super().segments_since() if job is None else self._of(job).segments_since()

    def _sole(self, scope: Scope) -> PostgresReads | None:
        """The owner of the only job that a question is about."""
        jobs = scope.filters.job
        return self._of(jobs[0]) if len(jobs) == 1 else None

    def _of(self, job: str) -> PostgresReads:
        server = self._fleet.owner(job)
        if server.number not in self._owners:
            with server.asked() as engine:
                conn = self._stack.enter_context(snapshot(engine))
            self._owners[server.number] = PostgresReads(conn, self._policy)
        return self._owners[server.number]


@contextmanager
def open_fleet_books(fleet: Fleet, policy: Policy) -> Iterator[FleetReads]:
    """The books of all servers, each as of one instant. Raises `Unavailable` that names who cannot answer."""
    with _naming(fleet), ExitStack() as stack:
        conn = stack.enter_context(snapshot(fleet.joined))
        yield FleetReads(conn, policy, fleet, stack)


def read_fleet_readings(fleet: Fleet) -> Readings:
    """One look at all servers for the Prometheus page. Raises `Unavailable`."""
    with _naming(fleet):
        return read_readings(fleet.joined)


def list_away(fleet: Fleet) -> list[str]:
    """What is wrong with the servers that cannot be used now. Raises `Unavailable` where none can."""
    away = []
    for server in fleet.servers:
        try:
            with server.asked() as engine:
                check_ready(engine)
        except EttError as error:
            away.append(error.message)
    if len(away) == len(fleet.servers):
        raise Unavailable("; ".join(away))
    return away


@contextmanager
def _naming(fleet: Fleet) -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        found = _AWAY.search(str(error.__cause__))
        if found is None:
            raise
        msg = f"{fleet.servers[int(found[1])].name} cannot be reached"
        raise Unavailable(msg, retry_after_s=error.retry_after_s) from error
