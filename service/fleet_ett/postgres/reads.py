"""The books for readers: one snapshot, one read-only transaction, all questions of one request."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sqlalchemy import and_, exists, func, or_, select

from fleet_ett.errors import Conflict
from fleet_ett.postgres.pool import bound, told_unavailable
from fleet_ett.postgres.queries.components import read_component
from fleet_ett.postgres.queries.fleet import sum_ett, sum_held, sum_weights
from fleet_ett.postgres.queries.goodput import read_goodput
from fleet_ett.postgres.queries.incidents import list_incidents
from fleet_ett.postgres.queries.jobs import find_job, list_attempts, list_jobs
from fleet_ett.postgres.queries.losses import sum_lost_time
from fleet_ett.postgres.queries.nodes import list_nodes, list_quarantine
from fleet_ett.postgres.queries.timeline import list_segments, sum_ledger
from fleet_ett.postgres.queries.windows import hours_cut_before
from fleet_ett.postgres.queries.work import read_repeated_work
from fleet_ett.postgres.tables import job_hours, jobs, ledger_deltas, owners, retention
from fleet_ett.reads import HOUR_NS, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Engine

    from fleet_ett.core.policy import Policy
    from fleet_ett.reads import ComponentLosses, Page, Row, Scope

# A question that takes longer is given up, before the questions of others starve.
STATEMENT_TIMEOUT_S = 60
GRACE_S = 5  # for the server to say so
SECOND_NS = 1_000_000_000
# Plans are short: compiling them takes longer than it saves; sums of a fleet in a hundred groups fit into memory. A
# question is planned for its window and its jobs: a plan for any of them takes a fleet for ten jobs. It takes one core,
# and what it looks up it finds in memory or on an SSD.
SETTINGS = (
    f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'; SET LOCAL jit = off; SET LOCAL work_mem = '32MB';"
    " SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL max_parallel_workers_per_gather = 0;"
    " SET LOCAL random_page_cost = 1.1"
)


class PostgresReads:
    """`fleet_ett.reads.Reads` on one connection."""

    def __init__(self, conn: Connection, policy: Policy) -> None:
        self._conn = conn
        self._policy = policy
        self._since: int | None = None
        self._is_last: dict[int, bool] = {}

    def ett(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        self._check(scope.window)
        return sum_ett(self._conn, self._open(scope), by, page)

    def weights(self, scope: Scope) -> Row:
        """See `Reads`."""
        self._check(scope.window)
        return sum_weights(self._conn, self._open(scope))

    def held(self, scope: Scope, by: Sequence[str]) -> list[Row]:
        """See `Reads`."""
        self._check(scope.window)
        return sum_held(self._conn, self._open(scope), by)

    def lost_time(self, scope: Scope, by: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        self._check(scope.window)
        return sum_lost_time(self._conn, self._open(scope), by, page)

    def component(self, scope: Scope, step: str, most: int) -> ComponentLosses:
        """See `Reads`."""
        self._check(scope.window)
        return read_component(self._conn, self._open(scope), step, most)

    def repeated_work(self, scope: Scope, page: Page) -> tuple[Row, list[Row]]:
        """See `Reads`."""
        self._check(scope.window)
        return read_repeated_work(self._conn, self._open(scope), page)

    def jobs(self, scope: Scope, page: Page) -> list[Row]:
        """See `Reads`."""
        self._check(scope.window)
        return list_jobs(self._conn, self._open(scope), page)

    def job(self, job: str) -> Row | None:
        """See `Reads`."""
        return find_job(self._conn, job)

    def attempts(self, job: str) -> list[Row]:
        """See `Reads`."""
        return list_attempts(self._conn, job)

    def goodput(self, job: str) -> Row | None:
        """See `Reads`."""
        return read_goodput(self._conn, job, self._policy)

    def ledger(self, job: str, scope: Scope, by: Sequence[str]) -> list[Row]:
        """See `Reads`."""
        self._check(scope.window, job)
        return sum_ledger(self._conn, job, scope, by)

    def timeline(self, job: str, scope: Scope, page: Page) -> list[Row]:
        """See `Reads`."""
        return list_segments(self._conn, job, scope, page)

    def incidents(self, scope: Scope, kinds: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        return list_incidents(self._conn, self._open(scope), kinds, page)

    def nodes(self, scope: Scope, page: Page) -> list[Row]:
        """See `Reads`."""
        # faults may come after all jobs: the end stays
        return list_nodes(self._conn, scope, page)

    def quarantine(self, window: Window, node: Sequence[str], page: Page) -> list[Row]:
        """See `Reads`."""
        return list_quarantine(self._conn, window, node, page)

    def owners(self) -> dict[str, str]:
        """See `Reads`."""
        found = self._conn.execute(select(owners.c.component, owners.c.owner))
        return {row.component: row.owner for row in found}

    def segments_since(self, job: str | None = None) -> int:
        """See `Reads`."""
        del job
        if self._since is None:
            self._since = self._conn.scalar(select(func.max(retention.c.segments_ns))) or 0
        return self._since

    def _open(self, scope: Scope) -> Scope:
        """The scope without an end where nothing in the books comes after it: that cuts no job."""
        start, end = scope.window.start, scope.window.end
        if start is None or end is None:
            return scope
        if end not in self._is_last:
            later = (jobs.c.end_ns >= end, and_(jobs.c.end_ns.is_(None), jobs.c.as_of_ns >= end))
            found = self._conn.scalar(select(or_(*(exists().where(one) for one in later))))
            self._is_last[end] = not found
        return replace(scope, window=Window(start)) if self._is_last[end] else scope

    def _check(self, window: Window, job: str | None = None) -> None:
        """Raise `Conflict` where the window cuts an hour of which segments are gone: half of it cannot be told."""
        if not any(bound is not None and bound % HOUR_NS for bound in (window.start, window.end)):
            return
        since = self.segments_since()
        hours = hours_cut_before(window, since)
        if not hours:
            return
        held = []
        for table in (job_hours, ledger_deltas):
            one = select(table.c.job_id).where(table.c.hour_ns.in_(hours))
            if job is not None:
                one = one.join(jobs, jobs.c.job_id == table.c.job_id).where(jobs.c.job == job)
            held.append(exists(one))
        if self._conn.scalar(select(or_(*held))):
            day = datetime.fromtimestamp(since // SECOND_NS, timezone.utc).date()
            msg = (
                f"what happened within an hour is kept from {day} on: before it a window has full hours (UTC)"
            )
            raise Conflict(msg)


@contextmanager
def open_books(engine: Engine, policy: Policy) -> Iterator[PostgresReads]:
    """One consistent snapshot of the books. Raises `Unavailable` when the database cannot answer."""
    with snapshot(engine) as conn:
        yield PostgresReads(conn, policy)


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A read-only connection on which every statement sees the same instant. Raises `Unavailable`, `Busy`."""
    options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with told_unavailable(), engine.connect().execution_options(**options) as conn, conn.begin():
        bound(conn, STATEMENT_TIMEOUT_S + GRACE_S)
        conn.exec_driver_sql(SETTINGS)
        yield conn
