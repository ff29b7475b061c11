"""What a booking costs, in one run through the real PostgreSQL: `python -m tests.bench.attribution [--attempts 500]`.

Two databases on one embedded server: in one a live job in its first attempt, in the other one of a year with many
attempts behind it. Both get one step window at a time and are booked, in turns. Then a fleet of live jobs, every one
with something new, is booked as one worker of `fleet-ett serve` does it. Goals: the ratio, and what the fleet needs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import make_url

from fleet_ett.core.policy import Policy
from fleet_ett.ingest import decode_batch, take_in
from fleet_ett.postgres import rollups
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.server import EmbeddedServer
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.worker import book_due_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
RATIO_GOAL = 1.2
FRESH_S = 5  # no job of the fleet may wait longer
POLICY = Policy()


@dataclass
class Job:
    """A job as its one node tells it; all its ranks step together. Times ns."""

    name: str
    at: int
    ranks: int = 8
    step: int = 0
    attempt: int = -1
    seq: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    def say(self, kind: str, **fields: Any) -> None:
        """One more event of the present attempt."""
        self.seq += 1
        of = {"job": self.name, "attempt": f"a{self.attempt}"}
        self.events.append({"seq": self.seq, "type": kind, **of, **fields})

    def begin(self) -> None:
        """The next attempt starts: a minute of start-up."""
        self.attempt += 1
        self.say("attempt_start", ts=self.at, gpus=self.ranks, world_size=self.ranks)
        for rank in range(self.ranks):
            end = self.at + 60 * SECOND
            self.say("phase", rank=rank, phase="model_build", start=self.at, end=end, work_key="build")
        self.at += 60 * SECOND

    def train(self, windows: int, seconds: int) -> None:
        """Step windows of `seconds` of every rank, ten steps each."""
        for _ in range(windows):
            end = self.at + seconds * SECOND
            for rank in range(self.ranks):
                self.say("steps", rank=rank, first=self.step, last=self.step + 9, start=self.at, end=end)
            self.at, self.step = end, self.step + 10

    def fail(self, lost_steps: int) -> None:
        """The attempt ends, and the next one does some of its steps again."""
        self.say("attempt_end", ts=self.at, outcome="failed", exit_code=1)
        self.step = max(self.step - lost_steps, 0)

    def hand_in(self, store: PostgresStore) -> None:
        """Store what it said, at most a body at a time."""
        agent = {"node": self.name, "incarnation": self.name, "version": "1.0"}
        while self.events:
            chunk, self.events = self.events[:20_000], self.events[20_000:]
            told = take_in(decode_batch({"agent": agent, "events": chunk}, now=self.at), store, now=self.at)
            assert len(chunk) == told["accepted"], told


def long_job(name: str, now: int, attempts: int, windows: int) -> Job:
    """A job that is live at `now` in its last attempt, those before it spread over a year."""
    apart = 365 * DAY // max(attempts, 1)
    job = Job(name, now - 600 * SECOND - (attempts - 1) * apart)
    for nth in range(attempts):
        job.at = now - 600 * SECOND - (attempts - 1 - nth) * apart
        job.begin()
        if nth < attempts - 1:
            job.train(4, 600)
            job.fail(10)
    job.train(windows, max((now - job.at) // SECOND // windows, 1))
    return job


@contextmanager
def database(server: EmbeddedServer, name: str) -> Iterator[Engine]:
    """A database of that name at the newest migration."""
    with psycopg.connect(server.conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    url = make_url(server.url).set(database=name).render_as_string(hide_password=False)
    migrate(url)
    engine = open_pool(url)
    try:
        yield engine
    finally:
        engine.dispose()


def booked(engine: Engine, now: int) -> int:
    """How many jobs were booked at about `now` (ns), whatever their pace."""
    done = 0
    while more := book_due_jobs(engine, POLICY, clock=lambda: now):
        done += more
    return done


def settle(engine: Engine) -> None:
    """As after hours of service: roll-ups added up, statistics known."""
    rollups.fold(engine)
    with engine.connect() as conn:
        conn.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")


def wal(engine: Engine) -> int:
    """How many bytes of WAL were ever written."""
    with engine.connect() as conn:
        found = conn.exec_driver_sql("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").scalar_one()
    return int(found)


def by_history(server: EmbeddedServer, args: argparse.Namespace) -> None:
    """Book two jobs in turns, window by window, and print what it costs."""
    now = time.time_ns() // SECOND * SECOND - 7200 * SECOND
    with ExitStack() as stack:
        there = []
        for attempts in (1, args.attempts):
            engine = stack.enter_context(database(server, f"attempts_{attempts}"))
            job = long_job("long", now, attempts, args.windows)
            begin = time.perf_counter()
            job.hand_in(PostgresStore(engine))
            booked(engine, job.at)
            settle(engine)
            print(f"... {attempts} attempts: filled in {time.perf_counter() - begin:.1f} s", file=sys.stderr)
            there.append((attempts, engine, job))
        took: dict[int, list[float]] = {attempts: [] for attempts, _, _ in there}
        written = dict.fromkeys(took, 0)
        for round_ in range(args.rounds + 3):
            for attempts, engine, job in there:
                job.train(1, 35)
                job.hand_in(PostgresStore(engine))
                before, begin = wal(engine), time.perf_counter()
                assert 1 == booked(engine, job.at)
                if round_ >= 3:  # the first ones warm the connection and the caches
                    took[attempts].append(time.perf_counter() - begin)
                    written[attempts] += wal(engine) - before
    few, many = (statistics.median(one) for one in took.values())
    print(f"\none step window of {there[0][2].ranks} ranks booked, {args.rounds} times")
    print(f"{'attempts of the job':28}{'ms':>10}{'WAL KiB':>10}{'ratio':>8}{'goal':>8}")
    for attempts, one in took.items():
        size = written[attempts] / args.rounds / 1024
        ratio, goal = (f"{many / few:8.2f}", f"{RATIO_GOAL:8.1f}") if attempts > 1 else ("", "")
        print(f"{attempts:<28}{statistics.median(one) * 1e3:10.1f}{size:10.1f}{ratio}{goal}")


def fleet(server: EmbeddedServer, args: argparse.Namespace) -> None:
    """Book all jobs of a fleet again and again, as one worker does, and print how many a second."""
    now = time.time_ns() // SECOND * SECOND - 7200 * SECOND
    with database(server, "fleet") as engine:
        store = PostgresStore(engine)
        jobs = []
        for nth in range(args.jobs):
            job = Job(f"job-{nth:04}", now - (90 + 30 * args.windows) * SECOND, ranks=2)
            job.begin()
            job.train(args.windows, 30)
            job.hand_in(store)
            jobs.append(job)
        booked(engine, jobs[0].at)
        settle(engine)
        took, written = [], 0
        for _ in range(args.fleet_rounds):
            for job in jobs:
                job.train(1, 30)
                job.hand_in(store)
            before, begin = wal(engine), time.perf_counter()
            assert args.jobs == booked(engine, jobs[0].at)
            took.append(time.perf_counter() - begin)
            written += wal(engine) - before
            print(f"... {args.jobs / took[-1]:,.0f} bookings/s", file=sys.stderr)
        each = statistics.median(took) / args.jobs
    events = args.windows * 2
    print(f"\n{args.jobs} live jobs with {events} step windows each and two new ones, one worker")
    print(f"{'what':28}{'ms':>10}{'WAL KiB':>10}{'per s':>8}{'goal':>8}")
    size = written / args.fleet_rounds / args.jobs / 1024
    print(f"{'a booking':28}{each * 1e3:10.2f}{size:10.1f}{1 / each:8.0f}{args.jobs / FRESH_S:8.0f}")


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=500, help="of the long job")
    parser.add_argument("--rounds", type=int, default=40, help="bookings of the long job")
    parser.add_argument("--windows", type=int, default=100, help="step windows of a rank's present attempt")
    parser.add_argument("--jobs", type=int, default=500, help="of the fleet")
    parser.add_argument("--fleet-rounds", type=int, default=3, help="bookings of each of them")
    args = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ett-bench-"))
    parent.chmod(0o711)
    try:
        with EmbeddedServer.start(parent / "data") as server:
            by_history(server, args)
            if args.jobs:
                fleet(server, args)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
