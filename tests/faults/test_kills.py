"""SIGKILL to the service, to the database and to single backends while agents post and the worker books."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack, suppress

from fleet_ett.postgres.embedded.folder import Folder
from fleet_ett.postgres.embedded.leftovers import processes_in, read_pid
from tests.faults.books import check_books, check_events
from tests.faults.senders import Posting, make_senders
from tests.faults.server import folder, wait_until
from tests.faults.service import service
from tests.postgres.agents import HOUR

SECONDS = float(os.environ.get("ETT_TEST_FAULT_SECONDS", "0"))
ROUNDS = 2  # at least
SEED = int(os.environ.get("ETT_TEST_SEED", "7"))


def test_kills_of_service_and_database_change_nothing() -> None:
    """Each of the three at a random moment, again and again; `make soak-faults SECONDS=600` goes on for longer."""
    chance = random.Random(SEED)
    senders = make_senders(4, time.time_ns() - 72 * HOUR, steps=int(60 + 8 * SECONDS))
    with ExitStack() as stack:
        root = stack.enter_context(folder()) / "data"
        pgdata = Folder(root).pgdata
        served = stack.enter_context(service("--data-dir", str(root)))
        posting = stack.enter_context(Posting(senders, served.url, pause_s=0.1))

        def kill_service() -> None:
            served.kill()
            served.start()

        def kill_backend() -> None:
            backends = [pid for pid, _ in processes_in(pgdata) if pid != read_pid(pgdata)]
            _kill(chance.choice(backends) if backends else None)

        kills = [kill_service, kill_backend, lambda: _kill(read_pid(pgdata))]
        rounds, until = 0, time.monotonic() + SECONDS
        while rounds < ROUNDS or time.monotonic() < until:
            chance.shuffle(kills)
            for kill in kills:
                time.sleep(chance.random())
                kill()
            rounds += 1
        posting.finish()
        wait_until(served.is_ready)
        conninfo = f"host={pgdata} port=5432 user=ett dbname=ett"
        check_events(conninfo, senders)
        check_books(conninfo, senders)
        assert {200} < {status for one in senders for status in one.statuses} <= {0, 200, 503}


def _kill(pid: int | None) -> None:
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
