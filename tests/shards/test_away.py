"""A server that is away: its jobs wait, others go on, and nobody is shown a part of the fleet."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import make_url

from fleet_ett.pieces import server_of
from fleet_ett.postgres import store as store_module
from fleet_ett.postgres.embedded.programs import find_bin_dir
from fleet_ett.postgres.server import EmbeddedServer
from tests.postgres.embedded import DEADLINE_S, killed, wait_until
from tests.shards.fleet import SERVERS, FleetService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

T0 = 1_772_452_800_000_000_000
S = 1_000_000_000
# One job on each server.
JOBS = {server_of(f"job-{n}", SERVERS): f"job-{n}" for n in range(20)}


@pytest.fixture
def service(spread: FleetService) -> FleetService:
    """A running service that has never heard of anything."""
    wait_until(lambda: spread.get("/readyz")["status"] == "ready")
    spread.forget()
    return spread


@contextmanager
def away(urls: list[str], number: int) -> Iterator[None]:
    """One server takes no connections meanwhile."""
    url = make_url(urls[number + 1])
    admin_url = url.set(database="postgres", drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS false")
        # with a time to wait for their end: without one it only tells them
        ended = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s"
        admin.execute(ended, [url.database])
        try:
            yield
        finally:
            admin.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS true")


def test_only_the_jobs_of_a_server_that_is_away_wait(service: FleetService, urls: list[str]) -> None:
    """503 with Retry-After for its jobs, 200 for others; `/readyz` names it; it is used again once it is back."""
    seqs = {server: post(service, [phase(job, 0)]).status_code for server, job in JOBS.items()}
    assert dict.fromkeys(JOBS, 200) == seqs
    service.make_books(T0 + 3600 * S)
    with away(urls, 1):
        answers = {server: post(service, [phase(job, 1)]) for server, job in JOBS.items()}
        assert {0: 200, 1: 503, 2: 200} == {server: one.status_code for server, one in answers.items()}
        assert "database server 1 of 3" in answers[1].json()["detail"]
        assert int(answers[1].headers["retry-after"]) > 0
        ready = service.get("/readyz")
        assert ("partly", 1) == (ready["status"], len(ready["away"]))
        assert "database server 1 of 3" in ready["away"][0]
        for path in ("/v1/fleet/ett", "/v1/jobs", "/v1/nodes", "/metrics"):
            answer = service.ask(path)
            assert (503, "unavailable") == (answer.status_code, answer.json()["code"]), path
            assert "database server 1 of 3" in answer.json()["detail"], path
        for part in ("", "/ledger", "/timeline", "/goodput"):
            told = {server: service.ask(f"/v1/jobs/{job}{part}") for server, job in JOBS.items()}
            assert {0: 200, 1: 503, 2: 200} == {server: one.status_code for server, one in told.items()}, part
    wait_until(lambda: post(service, [phase(JOBS[1], 1)]).status_code == 200)
    assert {"ready": []} == {told["status"]: told["away"] for told in [service.get("/readyz")]}
    assert 3 == service.get("/v1/fleet/ett")["jobs"]


def test_a_lock_is_no_reason_to_leave_a_server_alone(
    service: FleetService, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sender waits in vain; the server takes what others send."""
    monkeypatch.setattr(store_module, "ALONE", "SET LOCAL lock_timeout = '1s'")
    assert 200 == post(service, [phase(JOBS[1], 0)]).status_code
    with psycopg.connect(urls[2].replace("+psycopg", "")) as other:
        other.execute("SELECT FROM sources FOR UPDATE")
        assert 503 == post(service, [phase(JOBS[1], 1)]).status_code
        assert 200 == post(service, [phase(JOBS[1], 2)], node="n2").status_code


def test_a_batch_that_one_server_could_not_take_is_sent_again(service: FleetService, urls: list[str]) -> None:
    """It is acknowledged as a whole; what the others had stored already is there once."""
    events = [phase(job, number) for number, job in enumerate(JOBS.values())]
    with away(urls, 2):
        assert 503 == post(service, events).status_code
        assert {0: 1, 1: 1} == {number: stored(service, number) for number in (0, 1)}
    wait_until(lambda: post(service, events).status_code == 200)
    assert [1, 1, 1] == [stored(service, number) for number in range(SERVERS)]
    told = post(service, events).json()
    assert (0, 3) == (told["accepted"], told["duplicates"])


def test_what_a_node_says_beside_all_jobs_waits_for_all(service: FleetService, urls: list[str]) -> None:
    """A fault may concern a job of the server that is away."""
    fault = {"type": "fault", "ts": T0, "kind": "xid", "seq": 0}
    with away(urls, 0):
        assert 503 == post(service, [fault]).status_code
    wait_until(lambda: post(service, [fault]).status_code == 200)
    assert [1, 1, 1] == [stored(service, number) for number in range(SERVERS)]
    assert 1 == service.get("/v1/nodes")["items"][0]["faults"]


def test_a_server_killed_during_ingest_loses_nothing(service: FleetService, folder: Path) -> None:
    """SIGKILL to one server's Postgres under load: what was answered 200 is there, once, after its restart."""
    events = [{**phase(JOBS[n % SERVERS], n // SERVERS), "seq": n} for n in range(90)]
    statuses: list[int] = []
    met = threading.Event()

    def speak() -> None:
        spool = [events[low : low + 4] for low in range(0, len(events), 4)]
        until = time.monotonic() + DEADLINE_S
        while spool and time.monotonic() < until:
            if len(spool) == 1:
                met.wait(DEADLINE_S)  # however slow the killing is, something is left to be said after it
            statuses.append(post(service, spool[0]).status_code)
            if statuses[-1] == 200:
                spool.pop(0)
            time.sleep(0.02)

    speaker = threading.Thread(target=speak)
    speaker.start()
    wait_until(lambda: len(statuses) > 2)
    with killed(folder / "server2"):
        met.set()
        wait_until(lambda: 503 in statuses)
    with EmbeddedServer.start(
        folder / "server2", bin_dir=find_bin_dir(os.environ)
    ):  # the first one's share keeps it going afterwards
        speaker.join()
    assert {200, 503} == set(statuses)
    assert [30, 30, 30] == [stored(service, number) for number in range(SERVERS)]
    wait_until(lambda: service.ask("/v1/fleet/ett").status_code == 200)


def phase(job: str, number: int) -> dict[str, Any]:
    """A minute of a job."""
    start = T0 + 60 * S * number
    return {
        "type": "phase", "job": job, "attempt": "a", "rank": 0, "phase": "x", "start": start, "end": start + 60 * S,
        "seq": 100 * number,
    }  # fmt: skip


def post(service: FleetService, events: list[dict[str, Any]], node: str = "n1") -> httpx.Response:
    """What an agent of one node sends."""
    agent = {"node": node, "incarnation": f"life of {node}", "version": "1.0"}
    return service.client.post("/v1/events", json={"agent": agent, "events": events})


def stored(service: FleetService, number: int) -> int:
    """How many events a server has."""
    with service.engines[number].connect() as conn:
        return int(conn.exec_driver_sql("SELECT count(*) FROM events").scalar_one())
