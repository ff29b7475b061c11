"""Books jobs as their events come: the loop around `attribution`, and `rebuild`.

Any number of workers may run, in any number of processes: a job is held by one at a time. What happened is
in the database alone, so a worker may be killed at any moment, and the next one goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from fleet_ett.attribution import SECOND_NS, attribute_job, put_in_order
from fleet_ett.core.policy import Policy
from fleet_ett.errors import EttError, NotFound
from fleet_ett.postgres import jobs_due, maintenance, rollups
from fleet_ett.postgres.bookings import Bookings, take_marks
from fleet_ett.postgres.jobs_due import Retry, give_up
from fleet_ett.postgres.pool import LONG_S, is_transient, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from sqlalchemy import Engine

    from fleet_ett.postgres.job_books import JobBooks
    from fleet_ett.settings import Settings

log = logging.getLogger(__name__)

IDLE_S = 0.25  # between two looks when nothing is to be done
AWAY_S = 1.0  # between two tries when the database is away
AT_ONCE = 50  # jobs that one look hands out
STOP_S = 10.0
# No job is booked more often than this; one that takes long less often: a fifth of a worker's time is one job's, half
# of it where no other job waits.
PACE_NS = SECOND_NS
PACE, PACE_ALONE = 5, 2
LONGEST_PACE_NS = 30 * SECOND_NS
RETRY_NS = 60 * SECOND_NS  # a job that cannot be booked, when new events come
RETRY_ANYWAY_NS = 600 * SECOND_NS
MAINTENANCE_NS = 3600 * SECOND_NS
FOLD_NS = SECOND_NS  # between two additions to the roll-ups
MAX_ERROR = 2000  # characters


def policy_of(settings: Settings) -> Policy:
    """The accounting's policy as it is set."""
    return Policy(lateness_ns=settings.lateness_ns, hang_ns=settings.hang_ns)


def book_due_jobs(engine: Engine, policy: Policy, *, clock: Callable[[], int] = time.time_ns) -> int:
    """Book jobs that have to be, those first that wait the longest; returns how many were. `clock`: the time in ns.

    Raises `Unavailable` when the database is away. A job that cannot be booked is noted and passed by.
    """
    with transaction(engine) as conn:
        jobs_due.spread_node_marks(conn, after=max(policy.after_ns, policy.lateness_ns))
        waiting = jobs_due.due_jobs(conn, now=clock(), most=AT_ONCE)
    return book_jobs(engine, policy, waiting, clock=clock) if waiting else 0


def book_jobs(
    engine: Engine, policy: Policy, job_ids: Sequence[int], *, clock: Callable[[], int] = time.time_ns
) -> int:
    """Book those of the jobs that have to be and that nobody else books; returns how many.

    The books of each change as a whole or not at all. Raises `Unavailable` when the database is away.
    """
    now, began = clock(), time.monotonic_ns()
    try:
        with transaction(engine, answer_s=LONG_S) as conn:
            bookings = Bookings.hold(conn, policy, job_ids, now=now)
            failed = _book_held(bookings, now=now, policy=policy)
            cost = (time.monotonic_ns() - began) // max(len(bookings.jobs), 1)
            pace = PACE_ALONE if len(job_ids) == 1 else PACE
            bookings.write(not_before=now + min(max(pace * cost, PACE_NS), LONGEST_PACE_NS))
            return len(bookings.jobs) + len(failed)
    except EttError:
        raise
    except Exception as error:
        if isinstance(error, DBAPIError) and is_transient(error):
            raise
        if len(job_ids) > 1:  # the database refused what one of them would write
            return sum(book_jobs(engine, policy, [job_id], clock=clock) for job_id in job_ids)
        log.exception("job %r could not be booked", job_ids[0])
        _note_error(engine, policy, job_ids[0], error, now=now)
        return 1


def _book_held(bookings: Bookings, *, now: int, policy: Policy) -> list[str]:
    """Work out the books of held jobs; returns the keys of those that could not be booked, which say why."""
    failed: list[str] = []
    bookings.read_own()
    plans = []
    for job in list(bookings.jobs):
        with _noting(bookings, job, failed, now):
            plans.append((job, put_in_order(job, now=now)))
    bookings.read_near(plans, now=now)
    for job, plan in plans:
        with _noting(bookings, job, failed, now):
            attribute_job(job, plan, now=now, policy=policy)
    return failed


@contextmanager
def _noting(bookings: Bookings, job: JobBooks, failed: list[str], now: int) -> Iterator[None]:
    """Note an error of one job's books with that job. An error of the database is everybody's."""
    try:
        yield
    except (EttError, DBAPIError):
        raise
    except Exception as error:
        log.exception("job %r could not be booked", job.job)
        failed.append(job.job)
        bookings.give_up(job, Retry(_told(error), now + RETRY_ANYWAY_NS, now + RETRY_NS))


def rebuild(engine: Engine, policy: Policy, *, job: str | None = None, as_of: int | None = None) -> int:
    """Derive the books of one job, or of all, again from the raw events; returns how many jobs.

    `as_of` (ns) is the time of the question, by default now. Raises `NotFound` for an unknown job, and `EttError`
    when jobs could not be booked: they are named, the reason stands with each, and the others are booked.
    """
    with transaction(engine) as conn:
        chosen = jobs_due.job_ids(conn, job)
    if job is not None and not chosen:
        msg = f"there is no job {job!r}"
        raise NotFound(msg)
    failed = []
    for job_id, name in chosen.items():
        now = time.time_ns() if as_of is None else as_of
        try:
            with transaction(engine, answer_s=LONG_S) as conn:
                jobs_due.hold_jobs(conn, [job_id], now=None)
                maintenance.drop_books(conn, job_id)
                bookings = Bookings.hold(conn, policy, [job_id], now=None)
                bookings.read_own()
                for one in bookings.jobs:
                    plan = put_in_order(one, now=now)
                    bookings.read_near([(one, plan)], now=now)
                    attribute_job(one, plan, now=now, policy=policy)
                bookings.write(not_before=0)
        except EttError:
            raise
        except Exception as error:
            log.exception("job %r could not be booked", name)
            _note_error(engine, policy, job_id, error, now=now)
            failed.append(name)
    rollups.fold(engine)
    if failed:
        shown = ", ".join(repr(name) for name in failed[:10])
        msg = (
            f"{len(failed)} of {len(chosen)} jobs could not be booked: {shown}{' ...' if failed[10:] else ''}"
        )
        raise EttError(msg)
    return len(chosen)


class Workers:
    """The workers of this process: `with Workers(engine, settings): ...`."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._policy = policy_of(settings)
        self._keep = {"retention_days": settings.retention_days, "segment_days": settings.segment_days}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"worker-{number}", daemon=True)
            for number in range(settings.attribution_workers)
        ]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop after the job at hand; one that takes too long is left, and its transaction with it."""
        self._stopping.set()
        until = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))

    def _run(self, number: int) -> None:
        maintained, folded, away = -MAINTENANCE_NS, -FOLD_NS, False  # by a clock that nobody sets
        while not self._stopping.is_set():
            pause = 0.0
            try:
                now = time.monotonic_ns()
                if number == 0 and now - maintained > MAINTENANCE_NS:
                    maintenance.maintain(self._engine, **self._keep, now=time.time_ns())
                    maintained = now
                if number == 0 and now - folded > FOLD_NS:
                    rollups.fold(self._engine)
                    folded = now
                if not book_due_jobs(self._engine, self._policy):
                    pause = IDLE_S
                if away:
                    log.info("the database is back")
                away = False
            except EttError as error:
                if not away:
                    log.warning("books wait: %s", error.message)
                away, pause = True, AWAY_S
            except Exception:  # a worker outlives any bug: what it cannot do is said, and tried again
                log.exception("a worker stumbled")
                pause = AWAY_S
            self._stopping.wait(pause)


def _told(error: Exception) -> str:
    """An error in characters that the database can hold."""
    said = f"{type(error).__name__}: {error}"[:MAX_ERROR]
    return said.replace("\0", "\ufffd").encode(errors="replace").decode()


def _note_error(engine: Engine, policy: Policy, job_id: int, error: Exception, *, now: int) -> None:
    """Show what went wrong beside the job's last good books, and do not try again at once."""
    with transaction(engine) as conn:
        jobs_due.hold_jobs(conn, [job_id], now=None)
        marked = take_marks(conn, [job_id], policy)
        give_up(conn, job_id, marked[job_id], Retry(_told(error), now + RETRY_ANYWAY_NS, now + RETRY_NS))
