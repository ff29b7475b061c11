"""Broken cables, unknown commits, standbys, servers that are full or not yet there: refused, and healed by itself."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from fleet_ett.postgres import pool
from fleet_ett.postgres.migrate import migrate
from tests.faults.books import check_books, check_events
from tests.faults.cable import AFTER, BEFORE, Cable, cable
from tests.faults.senders import Posting, make_senders
from tests.faults.server import wait_until
from tests.faults.service import hosted
from tests.postgres.agents import HOUR, Agent, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.server import Server

START = time.time_ns() - 48 * HOUR
LIVES = count()


@contextmanager
def plugged(server: Server, *, workers: int = 0) -> Iterator[tuple[Cable, httpx.Client]]:
    """A service that reaches the server through a cable."""
    with (
        cable(server.socket) as plug,
        hosted(plug.url(), workers=workers) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield plug, client


def heartbeat(client: httpx.Client, agent: Agent | None = None) -> httpx.Response:
    """Post something that nobody said before, or all that an agent said."""
    if agent is None:
        agent = Agent(incarnation=f"failover-{next(LIVES)}")
        agent.say("heartbeat", ts=START)
    return client.post("/v1/events", json=agent.body())


def problem(answer: httpx.Response) -> str:
    """What a 503 says."""
    assert (503, "unavailable") == (answer.status_code, answer.json()["code"]), answer.text
    assert int(answer.headers["retry-after"]) > 0
    return str(answer.json()["detail"])


@pytest.mark.parametrize(("where", "known"), [(BEFORE, 0), (AFTER, 1)])
def test_an_answer_to_commit_that_never_comes(server: Server, where: str, known: int) -> None:
    """The sender hears 503 whether it was done or not; sent again it is there once, and called a repeat or new."""
    agent = Agent(incarnation=f"cut-{where}")
    agent.say("heartbeat", ts=START)
    agent.say("steps", job="cut", attempt="a", rank=0, first=0, last=0, start=START, end=START + S)
    with plugged(server) as (plug, client):
        assert 200 == heartbeat(client).status_code
        plug.cut = where
        problem(heartbeat(client, agent))
        assert 1 == plug.cuts
        again = heartbeat(client, agent).json()
        assert (len(agent.said) * (1 - known), len(agent.said) * known) == (
            again["accepted"],
            again["duplicates"],
        )
        query = "SELECT count(*), count(DISTINCT seq) FROM events JOIN sources USING (source_id) WHERE incarnation ="
        assert [(2, 2)] == server.ask(f"{query} '{agent.incarnation}'")


def test_cables_cut_again_and_again_change_nothing(server: Server) -> None:
    """Connections broken at any moment, every few commits around the commit itself; the worker's, too."""
    senders = make_senders(3, START, steps=60, name="cables")
    with plugged(server, workers=1) as (plug, client):

        def is_cut() -> bool:
            heartbeat(client)  # something to commit, also once the senders have said all
            return plug.cut is None

        with Posting(senders, str(client.base_url), pause_s=0.01) as posting:
            for how in (BEFORE, AFTER, AFTER, BEFORE) * 2:
                plug.cut = how
                wait_until(is_cut)
                time.sleep(0.1)
                plug.pull()
            posting.finish()
        assert 8 == plug.cuts
        check_events(server.conninfo, senders)
        check_books(server.conninfo, senders)


def test_a_new_server_takes_over(make: Callable[..., Server]) -> None:
    """While a standby answers, whatever writes gets 503 and /readyz says so; promoted, it is used at once."""
    senders = make_senders(2, START, name="standby")
    with ExitStack() as stack:
        first = make("primary").create()
        migrate(first.url)
        second = first.standby(first.folder.root.with_name("standby"))
        stack.callback(second.stop, signal.SIGQUIT)
        first.configure(synchronous_standby_names="*")  # what is acknowledged is on both
        plug, client = stack.enter_context(plugged(first, workers=1))
        with Posting(senders, str(client.base_url), pause_s=0.02) as posting:
            wait_until(lambda: posting.answers > 6)
            first.kill()
            plug.target = second.socket
            plug.pull()
            wait_until(lambda: 503 in senders[0].statuses)
            assert "read-only" in problem(client.get("/readyz"))
            assert "read-only" in problem(heartbeat(client))
            assert 200 == client.get("/healthz").status_code
            second.promote()
            wait_until(lambda: client.get("/readyz").status_code == 200)
            posting.finish()
        check_events(second.conninfo, senders)
        check_books(second.conninfo, senders)


def test_a_primary_that_becomes_read_only_under_its_connections(server: Server) -> None:
    """Connections from before are thrown away, so that the service is not stuck with them."""
    with plugged(server) as (plug, client):
        assert 200 == heartbeat(client).status_code
        server.configure(default_transaction_read_only="on")
        wait_until(lambda: "read-only" in heartbeat(client).text)
        problem(client.get("/readyz"))
        before = plug.connections
        server.configure(default_transaction_read_only=None)
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert 200 == heartbeat(client).status_code
        assert plug.connections > before


def test_a_server_that_is_shutting_down_or_not_yet_up(make: Callable[..., Server]) -> None:
    """`shutting down` and nothing at all are 503; once it is back the same service goes on."""
    server = make("restarted").create()
    migrate(server.url)
    with plugged(server) as (plug, client), psycopg.connect(server.conninfo) as sleeper:
        assert 200 == heartbeat(client).status_code
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)  # waits for the sleeper, and lets nobody in
        wait_until(lambda: (plug.pull(), "stopping" in heartbeat(client).text)[1])
        assert "stopping" in problem(client.get("/readyz"))
        sleeper.close()
        server.stop()
        problem(heartbeat(client))
        server.start()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert 200 == heartbeat(client).status_code


def test_a_server_without_a_free_connection(server: Server) -> None:
    with ExitStack() as stack, plugged(server) as (plug, client):
        taken: list[psycopg.Connection[Any]] = []

        def is_refused() -> bool:
            with suppress(psycopg.OperationalError):
                while True:
                    taken.append(stack.enter_context(psycopg.connect(server.conninfo)))
            told = (heartbeat(client).text, client.get("/readyz").text)
            refused = all("no more connections" in one for one in told)
            if not refused:  # a connection of before ended just then, and the service took its place
                plug.pull()
            return refused

        wait_until(is_refused)
        taken[0].close()
        taken[1].close()
        wait_until(lambda: client.get("/readyz").status_code == heartbeat(client).status_code == 200)


def test_a_cable_that_freezes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall forgot the connection, or a server hangs: no request waits for ever, and new ones get through."""
    monkeypatch.setattr(pool, "PING_S", 0.5)
    monkeypatch.setattr(pool._Patient, "patience_s", 0.5)
    monkeypatch.setattr(pool, "CONNECT_TIMEOUT_S", 2)
    with plugged(server) as (plug, client):
        wait_until(lambda: heartbeat(client).status_code == 200)  # half a second is little on a busy machine
        plug.frozen.set()
        problem(heartbeat(client))
        said = problem(client.get("/readyz"))
        assert "not answered" in said or "reached" in said
        assert 200 == client.get("/healthz").status_code
        plug.frozen.clear()  # for new connections
        wait_until(lambda: client.get("/readyz").status_code == heartbeat(client).status_code == 200)


def test_no_server_at_all(server: Server) -> None:
    """The service runs, says what is wrong, and is ready once there is one."""
    with plugged(server) as (plug, client):
        plug.target = None
        problem(heartbeat(client))
        problem(client.get("/readyz"))
        problem(client.get("/v1/jobs"))
        problem(client.get("/metrics"))
        assert 200 == client.get("/healthz").status_code
        plug.target = server.socket
        wait_until(lambda: client.get("/readyz").status_code == 200)
