"""Services and schemas of different age, several at one database, and senders that cross each other's way."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import psycopg

from fleet_ett.postgres.migrate import migrate, newest_revision
from tests.faults.books import check_books, check_events
from tests.faults.cable import cable
from tests.faults.senders import Posting, make_senders
from tests.faults.server import wait_until
from tests.faults.service import environ, hosted
from tests.faults.test_failover import heartbeat, problem
from tests.postgres.agents import HOUR, S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.server import Server

START = time.time_ns() - 72 * HOUR


def test_a_service_older_and_newer_than_its_database(make: Callable[..., Server]) -> None:
    """Who is older is said, by /readyz and by `fleet-ett migrate`; a database without tables takes nothing."""
    server = make("versions").create()
    with hosted(server.url) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert "at migration none" in problem(client.get("/readyz"))
        assert "run fleet-ett migrate" in problem(heartbeat(client))
        migrate(server.url)
        wait_until(lambda: client.get("/readyz").status_code == heartbeat(client).status_code == 200)
        server.do("UPDATE alembic_version SET version_num = 'of_next_year'")
        said = problem(client.get("/readyz"))
        assert "of_next_year, which this version of the service does not know" in said
        command = [sys.executable, "-m", "fleet_ett", "migrate", "--database-url", server.url]
        done = subprocess.run(command, env=environ(), capture_output=True, text=True, check=False)
        assert (1, "") == (done.returncode, done.stdout)
        assert "run the newer version of fleet-ett" in done.stderr
        assert "Traceback" not in done.stderr
        server.do(f"UPDATE alembic_version SET version_num = '{newest_revision()}'")
        wait_until(lambda: client.get("/readyz").status_code == 200)


def test_two_addresses_of_one_database(server: Server) -> None:
    """Where the first one is dead the second one is used."""
    with ExitStack() as stack:
        dead, alive = (stack.enter_context(cable(target)) for target in (None, server.socket))
        hosts = f"host=127.0.0.1:{dead.port}&host=127.0.0.1:{alive.port}"
        url = stack.enter_context(hosted(f"postgresql://ett@/ett?sslmode=disable&{hosts}", workers=0))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=60))
        assert 200 == client.get("/readyz").status_code
        assert 200 == heartbeat(client).status_code


def test_two_services_share_a_database(server: Server) -> None:
    """Each agent is sent to both at once: every event is there once, and the books are those of one."""
    senders, twins = (make_senders(3, START, name="shared") for _ in range(2))
    with hosted(server.url) as one, hosted(server.url) as two:
        with Posting(senders, one, pause_s=0) as first, Posting(twins, two, pause_s=0) as second:
            first.finish()
            second.finish()
        check_events(server.conninfo, senders)
        check_books(server.conninfo, senders)


def test_batches_that_cross(server: Server) -> None:
    """Bodies that name the same sources, jobs, attempts and days in opposite orders: nobody hears more than `again`."""
    lives = [f"cross-{number}" for number in range(6)]

    def body(turn: int, order: list[str]) -> dict[str, Any]:
        events = []
        for place, life in enumerate(order):
            start = START - (turn % 3) * 24 * HOUR + place * S
            told = {"type": "phase", "rank": 0, "phase": "compile_cold", "start": start, "end": start + S}
            events.append(
                {"seq": turn, "incarnation": life, "job": f"{life}-{turn % 4}", "attempt": "a", **told}
            )
        return {"agent": {"node": "crossing", "incarnation": "envelope"}, "events": events}

    def speak(client: httpx.Client, turns: range, order: list[str]) -> set[int]:
        statuses = set()
        for turn in turns:
            while (answer := client.post("/v1/events", json=body(turn, order))).status_code != 200:
                assert answer.status_code in (429, 503), answer.text
                statuses.add(answer.status_code)
        return statuses

    with ExitStack() as stack, ThreadPoolExecutor(8) as threads:
        urls = [stack.enter_context(hosted(server.url)) for _ in range(2)]
        clients = [stack.enter_context(httpx.Client(base_url=url, timeout=60)) for url in urls]
        calls = []
        for number in range(8):
            turns = range(number * 20 + 1, number * 20 + 21)
            calls.append(
                threads.submit(speak, clients[number % 2], turns, lives[:: 1 if number % 4 < 2 else -1])
            )
        for call in calls:
            call.result()
    found = server.ask(
        "SELECT count(*), count(DISTINCT (source_id, seq)) FROM events JOIN sources USING (source_id)"
        " WHERE incarnation LIKE 'cross-%'"
    )
    assert [(len(lives) * 160, len(lives) * 160)] == found


def test_a_transaction_that_nobody_ends(server: Server) -> None:
    """Of one sender's source it holds up that sender alone; of a table, /readyz and liveness still answer."""
    senders = make_senders(2, START, name="stuck")
    with hosted(server.url) as url, httpx.Client(base_url=url, timeout=60) as client:
        for one in senders:
            one.post(client)
        with psycopg.connect(server.conninfo) as other:
            other.execute("SELECT FROM sources WHERE incarnation = 'stuck-life-0' FOR UPDATE")
            assert senders[1].post(client)
            assert not senders[0].post(client)
            assert [200, 503] == senders[0].statuses
        with Posting(senders, url, pause_s=0) as posting:
            posting.finish()
        check_books(server.conninfo, senders)
