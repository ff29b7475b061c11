"""An event that passes every check and breaks what comes after: it is refused, or its job is marked, and no more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.faults.books import check_books, check_events
from tests.faults.senders import Posting, make_senders
from tests.faults.server import wait_until
from tests.faults.service import hosted
from tests.postgres.agents import HOUR, Agent, S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.server import Server

START = time.time_ns() - 72 * HOUR
BAD = "poison"
# A rule of the database that the decoder does not know of: the phase of that name is broken data, whatever its cause.
REFUSE = {
    "data": "RAISE EXCEPTION 'value out of range' USING ERRCODE = '22003'",
    "rule": "RAISE EXCEPTION 'violates a check' USING ERRCODE = '23514'",
}


@pytest.fixture(params=sorted(REFUSE))
def refusing(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    body = f"BEGIN IF NEW.phase = '{BAD}' THEN {REFUSE[request.param]}; END IF; RETURN NEW; END"
    server.do(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
    server.do("CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()")
    yield str(request.param)
    server.do("DROP TRIGGER refuse ON events; DROP FUNCTION refuse")


def test_events_that_the_database_refuses(server: Server, refusing: str) -> None:
    """They are quarantined with the reason; rows and columns around them, and other senders, are stored."""
    agent = Agent(node=f"poisoned-{refusing}", incarnation=f"poisoned-{refusing}")
    for number in range(40):
        phase = BAD if number in (7, 31) else "compile_cold"
        start = START + number * S
        agent.say("phase", job=f"p-{refusing}", attempt="a", rank=0, phase=phase, start=start, end=start + S)
    columns: dict[str, list[Any]] = {
        "seq": [101, 102, 103],
        "start": [START, START + S, START + 2 * S],
        "end": [START + S, START + 2 * S, START + 3 * S],
        "phase": ["compile_cold", BAD, "compile_cold"],
    }
    bulk = {"type": "phase", "job": f"p-{refusing}", "attempt": "a", "rank": 1, "columns": columns}
    others = make_senders(3, START, name=f"beside-{refusing}")
    with hosted(server.url) as url, httpx.Client(base_url=url, timeout=60) as client:
        with Posting(others, url, pause_s=0) as posting:
            answer = client.post("/v1/events", json=agent.body(batches=[bulk]))
            posting.finish()
        assert 200 == answer.status_code, answer.text
        told = answer.json()
        assert (40, [7, 31, 41]) == (told["accepted"], [one["index"] for one in told["quarantined"]])
        assert all("the database does not take it" in one["reason"] for one in told["quarantined"])
        again = client.post("/v1/events", json=agent.body(batches=[bulk])).json()
        assert (0, 40, 3) == (again["accepted"], again["duplicates"], len(again["quarantined"]))
        kept = client.get("/v1/quarantine", params={"node": agent.node}).json()["items"]
        assert [8, 32, 102] == sorted(one["seq"] for one in kept)
        assert 200 == client.get("/readyz").status_code
        check_events(server.conninfo, others)
        check_books(server.conninfo, others)


def test_a_database_that_refuses_everything(server: Server, refusing: str) -> None:
    """That is no fault of the events: the sender keeps them."""
    agent = Agent(incarnation=f"everything-{refusing}")
    for number in range(150):
        start = START + number * S
        agent.say("phase", job="every", attempt="a", rank=0, phase=BAD, start=start, end=start + S)
    with hosted(server.url, workers=0) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert 500 == client.post("/v1/events", json=agent.body()).status_code


def test_a_job_that_the_books_refuse(server: Server) -> None:
    """Only it is marked, its neighbours are booked, /readyz and /metrics answer; it heals when the cause is gone."""
    senders = make_senders(4, START, name="booked")
    body = "BEGIN IF NEW.phase = 'compile_cold' AND NEW.job_id = (SELECT job_id FROM jobs WHERE job = 'booked-1')"
    body += " THEN RAISE EXCEPTION 'value out of range' USING ERRCODE = '22003'; END IF; RETURN NEW; END"
    server.do(f"CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
    server.do("CREATE TRIGGER spoil BEFORE INSERT ON segments FOR EACH ROW EXECUTE FUNCTION spoil()")
    try:
        with hosted(server.url) as url, httpx.Client(base_url=url, timeout=60) as client:
            with Posting(senders, url, pause_s=0) as posting:
                posting.finish()
            check_books(server.conninfo, [one for one in senders if one.agent.node != "booked-node-1"])
            wait_until(
                lambda: server.ask(
                    "SELECT 1 FROM jobs WHERE job = 'booked-1' AND error LIKE '%out of range%'"
                )
            )
            assert [("booked-1",)] == server.ask("SELECT job FROM jobs WHERE error IS NOT NULL")
            assert 200 == client.get("/readyz").status_code
            assert 200 == client.get("/metrics").status_code
    finally:
        server.do("DROP TRIGGER spoil ON segments; DROP FUNCTION spoil")
    server.do("UPDATE jobs SET not_before_ns = 0, due_ns = 0 WHERE job = 'booked-1'")
    with hosted(server.url):
        check_books(server.conninfo, senders)
