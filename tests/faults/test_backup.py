"""Backup of a living database and its restore: the same books, and what was said since is taken again, once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx

from fleet_ett.postgres.embedded.cluster import USER
from tests.faults.books import check_books, check_events, counters
from tests.faults.cable import cable
from tests.faults.senders import Posting, Sender, make_senders
from tests.faults.server import wait_until
from tests.faults.service import command, hosted
from tests.postgres.agents import HOUR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.server import Server

START = time.time_ns() - 72 * HOUR


def dump(server: Server, name: str) -> Path:
    """`pg_dump` beside the server's data."""
    file = server.folder.pgdata / name
    where = ("-h", str(server.folder.pgdata), "-U", USER)
    server.run("pg_dump", *where, "--format=custom", f"--file={file}", "ett")
    return file


def restore(server: Server, file: Path) -> Server:
    """`pg_restore` into an empty database."""
    where = ("-h", str(server.folder.pgdata), "-U", USER)
    server.run(
        "pg_restore",
        *where,
        "--dbname=ett",
        "--no-owner",
        "--exit-on-error",
        "--single-transaction",
        str(file),
    )
    return server


def again(senders: list[Sender]) -> list[Sender]:
    """The same agents with all that they ever said still to be sent."""
    agents = [one.agent for one in senders]
    return [Sender(one, [one.said[low : low + 7] for low in range(0, len(one.said), 7)]) for one in agents]


def counted(server: Server) -> dict[tuple[str, str], int]:
    """The counters of the jobs that were told while it was dumped, but for unknown time.

    Counters only rise: what nothing was told of yet when it was booked stays counted, and how much that was is a
    matter of the moment.
    """
    told = counters(server.conninfo).items()
    return {key: value for key, value in told if key[0].startswith("backup") and key[1] != "unknown"}


def test_a_living_database_is_dumped_and_restored(server: Server, make: Callable[..., Server]) -> None:
    """The copy is of one instant; `fleet-ett rebuild` gives the same; sent again, all is there once, counted once."""
    senders = make_senders(3, START, steps=40, name="backup")
    last = [one.spool.pop() for one in senders]  # however long the dump takes, something is said after it
    with hosted(server.url) as url:
        with Posting(senders, url, pause_s=0.05) as posting:
            wait_until(lambda: posting.answers > 20)
            file = dump(server, "living.dump")
            posting.finish()
        for one, body in zip(senders, last, strict=True):
            one.spool.append(body)
        with Posting(senders, url) as posting:
            posting.finish()
        check_books(server.conninfo, senders)
    restored = restore(make("restored").create(), file)
    held = restored.ask("SELECT count(*) FROM events")[0][0]
    assert 0 < held < server.ask("SELECT count(*) FROM events")[0][0]
    repeated = again(senders)
    with hosted(restored.url) as url:
        with Posting(repeated, url, pause_s=0) as posting:
            posting.finish()
        check_events(restored.conninfo, repeated)
        check_books(restored.conninfo, senders)
    expected = counted(server)
    assert {"productive", "replay", "startup"} <= {heading for _, heading in expected}
    assert expected == counted(restored)
    jobs = restored.ask("SELECT count(*) FROM jobs")[0][0]
    assert f"rebuilt {jobs} jobs\n" == command("rebuild", ETT_DATABASE_URL=restored.url)
    check_books(restored.conninfo, senders)
    assert expected == counted(restored)


def test_the_database_of_a_running_service_is_set_back(server: Server, make: Callable[..., Server]) -> None:
    """A point-in-time restore, or a failover to a standby that lagged: what the service remembers of it is forgotten.

    Jobs and attempts come into being in another order than the first time, so that ids of before are others' now.
    """
    early = make_senders(1, START, name="early")
    late = make_senders(3, START, name="late")
    with (
        cable(server.socket) as plug,
        hosted(plug.url()) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        _deliver(client, early)
        file = dump(server, "early.dump")
        _deliver(client, late)
        older = restore(make("older").create(), file)
        plug.target = older.socket
        plug.pull()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        _deliver(client, late[::-1])
        assert len(early[0].agent.said) == _deliver(client, early)  # all of them repeats
        check_books(older.conninfo, early + late)


def _deliver(client: httpx.Client, senders: list[Sender]) -> int:
    """Hand in all that was ever said; how much of it was known."""
    duplicates = 0
    for one in senders:
        answer = client.post("/v1/events", json=one.agent.body())
        assert 200 == answer.status_code, answer.text
        duplicates += answer.json()["duplicates"]
    return duplicates
