"""The books of several jobs in one transaction: one question for all of them, one statement for what changed.

A booking asks little of the database, but many times; a look at fifty jobs asks as often as one at a single job.
Jobs stay apart nevertheless: what a job changes is written only where all of the job could be booked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from ett_collector.wire import Event
from fleet_ett.core.identity import unique
from fleet_ett.core.ledger import Carry, JobMeta, attempt_start, job_meta
from fleet_ett.postgres import counters, jobs_due, ledgers, rollups, work_lives
from fleet_ett.postgres.arrays import update
from fleet_ett.postgres.event_reads import EventReads, Near
from fleet_ett.postgres.job_books import JobBooks, unpacked_folded
from fleet_ett.postgres.tables import attempts as attempts_table
from fleet_ett.postgres.tables import jobs as jobs_table
from fleet_ett.postgres.tables.rollups import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Table, TextClause

    from fleet_ett.attribution import Plan
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.steps import StepBatch
    from fleet_ett.postgres.event_reads import Place
    from fleet_ett.postgres.ledgers import Cells

DAY_NS = 86_400_000_000_000
NOTHING_CAME = jobs_due.Marked()
# All that is asked is by job: through an index, however much the planner knows of new partitions. It is planned for
# the stamps that are asked for, so that a year's other partitions are not even opened.
PLANS = (
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;"
    " SET LOCAL plan_cache_mode = force_custom_plan"
)

_SHOWN = (
    "SELECT job_id, attempt_id, attempt, first_ns, last_ns, alloc_ns, released, dirty, link_digest, carry_digest,"
    " CASE WHEN carry_digest IS NULL THEN carry END AS carry, summary, resume,"
    " start_ns,"
    " summary IS NOT NULL AND first_ns < (SELECT horizon_ns FROM retention) AS frozen FROM attempts"
)
_OPEN = text(f"{_SHOWN} WHERE job_id = ANY(:jobs) AND NOT folded")
_EVERY = text(f"{_SHOWN} WHERE job_id = :job_id")
_CARRY = text("SELECT carry FROM attempts WHERE job_id = :job_id AND attempt_id = :attempt_id")
_SEGMENTS_SINCE = text("SELECT segments_ns FROM retention")
_FACTS = text(
    "SELECT s.node, s.incarnation, f.seq, f.body FROM job_facts f JOIN sources s USING (source_id)"
    " WHERE f.job_id = :job_id"
)
_FOLD = text(
    "UPDATE attempts a SET folded = true, resume = NULL"
    " FROM unnest(CAST(:jobs AS bigint[]), CAST(:attempts AS integer[])) AS n (job_id, attempt_id)"
    " WHERE a.job_id = n.job_id AND a.attempt_id = n.attempt_id"
)
_UNFOLD = text("UPDATE attempts SET folded = false WHERE job_id = ANY(:jobs) AND folded")
_BOOKED = (
    "first_ns", "last_ns", "alloc_ns", "released", "dirty", "index", "start_ns", "end_ns", "live", "outcome", "gpus",
    "link_digest", "as_of_ns", "carry", "summary", "carry_digest",
)  # fmt: skip
_CLOSED = (
    "name", "cluster", "team", "model", "framework", "labels", "start_ns", "end_ns", "live", "as_of_ns", "due_ns",
    "late_ns", "summary", "state", "not_before_ns", "error",
)  # fmt: skip
_BOOK = text(
    update(
        attempts_table,
        ("job_id", "attempt_id"),
        _BOOKED,
        # the carry of an attempt whose events are gone is not at hand, and stays
        {"carry": "CASE WHEN n.carry_digest IS NOT NULL THEN coalesce(n.carry, t.carry) END"},
    )
)
_CLOSE = text(update(jobs_table, ("job_id",), _CLOSED, {"late_ns": "t.late_ns + n.late_ns"}))
_SET_RESUME = text(update(attempts_table, ("job_id", "attempt_id"), ("resume",)))
_SET_FOLDED = text(update(jobs_table, ("job_id",), ("folded",)))


@dataclass(slots=True)
class Bookings:
    """The books of jobs whose rows this transaction has locked; see `hold`."""

    conn: Connection
    policy: Policy
    jobs: list[JobBooks] = field(default_factory=list)
    marked: dict[int, jobs_due.Marked] = field(default_factory=dict)
    folded: list[tuple[int, int]] = field(default_factory=list)
    segments_since: int = 0  # those that ended by then are past their retention
    reads: EventReads = field(init=False)
    _own: dict[tuple[int, int], list[Event | StepBatch]] = field(default_factory=dict)
    _near: dict[Near, list[Event]] = field(default_factory=dict)
    _rows: dict[Table, dict[tuple[int, int], list[Cells]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reads = EventReads(self.conn)

    @classmethod
    def hold(cls, conn: Connection, policy: Policy, job_ids: Sequence[int], *, now: int | None) -> Bookings:
        """The books of those of the jobs that are due at `now` (ns) and that nobody else holds.

        With `now` None: of all of them, once nobody else holds them.
        """
        conn.exec_driver_sql(PLANS)
        out = cls(conn, policy)
        held = {row.job_id: row for row in jobs_due.hold_jobs(conn, job_ids, now=now)}
        if not held:
            return out
        ids = list(held)
        out.segments_since = conn.scalar(_SEGMENTS_SINCE) or 0
        out.marked = take_marks(conn, ids, policy)
        out.jobs = [out._job(row) for row in held.values()]
        by_id = {one.job_id: one for one in out.jobs}
        out._take(by_id, conn.execute(_OPEN, {"jobs": ids}))
        for job_id, incidents in ledgers.read_incidents(conn, ids).items():
            by_id[job_id].incidents = incidents
        for one in out.jobs:
            out._mark(one)
        return out

    @classmethod
    def look(cls, conn: Connection, policy: Policy, job_id: int, job: str) -> tuple[Bookings, JobBooks]:
        """The books of one job with all of its attempts, only to be read."""
        conn.exec_driver_sql(PLANS)
        out = cls(conn, policy)
        one = JobBooks(out, job_id, job, None, {}, {})
        out._take({job_id: one}, conn.execute(_EVERY, {"job_id": job_id}))
        for attempt in one.attempts:
            attempt.resume = None
        return out, one

    def _take(self, by_id: Mapping[int, JobBooks], rows: Iterable[Any]) -> None:
        """Let jobs know their attempts, but those that came into being since the marks were taken.

        Nothing is known yet of where the events of such an attempt lie: its own mark tells at the next look.
        """
        for row in rows:
            marked = self.marked.get(row.job_id, NOTHING_CAME)
            if row.first_ns is not None or marked.spans.get(row.attempt_id, (None, None))[0] is not None:
                by_id[row.job_id].take(row)

    def _job(self, row: Any) -> JobBooks:
        state, told = row.state, None
        if state is not None and not self.marked[row.job_id].facts:
            names = (row.name, row.cluster, row.team, row.model, row.framework, row.labels)
            told = JobMeta(*names, conflict=state["conflict"])
        if state is None:
            settled = ledgers.settled_sums(self.conn, row.job_id)
        else:
            settled = {tuple(one[:4]): one[4:] for one in state["settled"]}
        booked_under = {name: getattr(row, name) for name in NAMES}
        out = JobBooks(self, row.job_id, row.job, told, settled, booked_under)
        if row.folded is not None:
            out.folded, out.counted = unpacked_folded(row.folded)
        return out

    def _mark(self, job: JobBooks) -> None:
        """Let the attempts know what came; one that is folded has all of them unfolded."""
        marked = self.marked[job.job_id]
        if any(attempt_id not in job.places for attempt_id in marked.spans):
            job.unfold()
        for attempt in job.attempts:
            job.soil(attempt, marked)

    def unfold(self, job: JobBooks) -> None:
        """Read all attempts of a job again."""
        job.attempts.clear()
        self._take({job.job_id: job}, self.conn.execute(_EVERY, {"job_id": job.job_id}))
        self.conn.execute(_UNFOLD, {"jobs": [job.job_id]})
        job.incidents = ledgers.read_incidents(self.conn, [job.job_id]).get(job.job_id, [])
        for attempt in job.attempts:
            job.soil(attempt, self.marked[job.job_id])

    def read_own(self) -> None:
        """Read what names the attempts that are to be booked, of all jobs at once."""
        self._read_own([job.place(one) for job in self.jobs for one in job.attempts if one.changes])

    def read_near(self, plans: Iterable[tuple[JobBooks, Plan]], *, now: int) -> None:
        """Read what else concerns them, and the books that they have."""
        asked, there = [], []
        for job, plan in plans:
            for index, one in enumerate(plan.begun):
                if one.changes:
                    asked.append(self._asked(job.place(one), plan.after(index)[0], now))
                    there.append((job.job_id, one.attempt_id, job.since(one, one.resume)))
        found = self.reads.near(asked)
        self._near |= {one: found.get(one.place.attempt_id, []) for one in asked}
        for table in ledgers.DERIVED:
            rows = ledgers.read_rows(self.conn, table, there) if there else {}
            self._rows[table] = {(one, since): rows.get(one, []) for _, one, since in there}

    def _read_own(self, places: Sequence[Place]) -> None:
        found = self.reads.own(places)
        self._own |= {(one.attempt_id, one.since): found[one.attempt_id] for one in places}

    def _own_of(self, place: Place) -> list[Event | StepBatch]:
        key = (place.attempt_id, place.since)
        if key not in self._own:
            self._read_own([place])
        return self._own[key]

    def _asked(self, place: Place, next_start: int | None, now: int) -> Near:
        own = self._own_of(place)
        ends = [
            (one.start or 0) - one.clock_offset_ns
            for one in own
            if isinstance(one, Event) and one.type == "attempt_end"
        ]
        end = min(moment for moment in (max(ends, default=None), next_start, now) if moment is not None)
        policy = self.policy
        return Near(
            place,
            low=place.first - policy.before_ns,
            high=end + policy.after_ns,
            beats_from=place.since or place.first - DAY_NS,
            end=end,
            beats_to=end + policy.lateness_ns,
        )

    def started(self, place: Place) -> tuple[int, bool]:
        """See `fleet_ett.attribution.Job`."""
        own = (one for one in self._own_of(place) if isinstance(one, Event))
        starts = unique([one for one in own if one.type == "attempt_start"]).events
        if starts:
            return attempt_start(starts)
        return self.reads.first_stamp(place) or 0, True

    def events(self, place: Place, next_start: int | None, *, now: int) -> list[Event | StepBatch]:
        """See `fleet_ett.attribution.Job`."""
        asked = self._asked(place, next_start, now)
        if asked not in self._near:
            self._near[asked] = self.reads.near([asked]).get(place.attempt_id, [])
        return [*self._own_of(place), *self._near[asked]]

    def carry(self, job_id: int, attempt_id: int) -> Carry:
        """See `fleet_ett.attribution.Job`."""
        told = {"job_id": job_id, "attempt_id": attempt_id}
        return Carry.from_json(self.conn.execute(_CARRY, told).scalar_one())

    def meta(self, job_id: int) -> JobMeta:
        """See `fleet_ett.attribution.Job`."""
        found = self.conn.execute(_FACTS, {"job_id": job_id})
        told = [
            Event("job", row.node, row.incarnation, row.seq, 0, "", None, None, None, None, row.body)
            for row in found
        ]
        return job_meta(unique(told).events)

    def rows(self, table: Table, place: Place, since: int) -> list[Cells]:
        """The rows of a derived table that an attempt has from a moment (ns) on; see `ledgers.read_rows`."""
        known, key = self._rows.setdefault(table, {}), (place.attempt_id, since)
        if key not in known:
            found = ledgers.read_rows(self.conn, table, [(place.job_id, *key)])
            known[key] = found.get(place.attempt_id, [])
        return known[key]

    def gap(self, table: Table, place: Place, since: int) -> list[Cells]:
        """Those of the gap after an attempt."""
        found = ledgers.read_rows(self.conn, table, [(place.job_id, place.attempt_id, since)], gap_only=True)
        return found.get(place.attempt_id, [])

    def give_up(self, job: JobBooks, retry: jobs_due.Retry) -> None:
        """Leave the books of a job as they are, and say why."""
        self.jobs.remove(job)
        self.folded = [one for one in self.folded if one[0] != job.job_id]
        jobs_due.give_up(self.conn, job.job_id, self.marked[job.job_id], retry)

    def write(self, *, not_before: int) -> None:
        """Write what changed in all jobs; none is booked again before `not_before` (ns)."""
        changes = ledgers.Changes()
        kept: list[tuple[int, int, int | None, int | None]] = []
        for job in self.jobs:
            changes.add(job.changes)
            booked = {one["attempt_id"] for one in job.written}
            spans = self.marked[job.job_id].spans
            kept += [(job.job_id, one, *span) for one, span in spans.items() if one not in booked]
        jobs_due.soil_attempts(self.conn, kept)
        changes.write(self.conn)
        rollups.note(self.conn, changes.cells)
        work_lives.note(self.conn, changes.works)
        for job in self.jobs:
            if job.closing and any(job.closing[name] != one for name, one in job.names.items()):
                rollups.rename(self.conn, job.job_id, job.closing)
        self._update(
            _BOOK, ("job_id", "attempt_id", *_BOOKED), [row for job in self.jobs for row in job.written]
        )
        self._update(
            _SET_RESUME, ("job_id", "attempt_id", "resume"), [row for job in self.jobs for row in job.resumes]
        )
        if self.folded:
            jobs, attempts = (list(column) for column in zip(*self.folded, strict=True))
            self.conn.execute(_FOLD, {"jobs": jobs, "attempts": attempts})
        ledgers.replace_incidents(
            self.conn,
            [one for job in self.jobs for one in job.incidents],
            [one for job in self.jobs for one in job.incidents_now],
        )
        closing = [
            {**job.closing, "not_before_ns": not_before, "error": None} for job in self.jobs if job.closing
        ]
        self._update(_CLOSE, ("job_id", *_CLOSED), closing)
        self._update(_SET_FOLDED, ("job_id", "folded"), [one for one in closing if one["folds"]])
        counted = [counters.Counted(job.job_id, one["cluster"], one["team"], job.amounts, job.held)
                   for job, one in zip(self.jobs, closing, strict=True)]  # fmt: skip
        if counted:
            counters.raise_counters(self.conn, counted)

    def _update(self, statement: TextClause, names: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self.conn.execute(statement, {name: [row[name] for row in rows] for name in names})


def take_marks(conn: Connection, job_ids: Sequence[int], policy: Policy) -> dict[int, jobs_due.Marked]:
    """See `jobs_due.take_marks`; what is said of a node concerns an attempt until nothing of it can come late."""
    after = max(policy.after_ns, policy.lateness_ns)
    return jobs_due.take_marks(conn, job_ids, before=policy.before_ns, after=after)
