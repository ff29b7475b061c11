"""Setting several servers up: once or again, the same ones in the same order, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url

from fleet_ett.demo.backstage import LISTENS, stop
from fleet_ett.errors import Invalid, Unavailable
from fleet_ett.pieces import server_of
from fleet_ett.postgres.migrate import migrate, newest_revision
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.shards.schema import AT_HOME, IDS, SCHEMA
from fleet_ett.postgres.shards.servers import check_fleet, open_fleet, refuse_alone
from fleet_ett.postgres.shards.setup import set_up, statements
from fleet_ett.postgres.tables import metadata
from tests.shards.fleet import SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_772_452_800_000_000_000


@pytest.fixture(scope="module", autouse=True)
def lines(urls: list[str]) -> list[str]:
    """What is said when the fleet is set up."""
    return list(set_up(urls[0], urls[1:]))


@pytest.fixture
def another(urls: list[str]) -> Iterator[str]:
    """An empty database beside the home."""
    engine = open_pool(urls[0], size=1).execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as conn:
        conn.exec_driver_sql("CREATE DATABASE another")
        yield make_url(urls[0]).set(database="another").render_as_string(hide_password=False)
        conn.exec_driver_sql("DROP DATABASE another WITH (FORCE)")
    engine.dispose()


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """One command with those settings."""
    return subprocess.run(
        [sys.executable, "-m", "fleet_ett", *arguments], env=environment(**settings), capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def environment(**settings: str) -> dict[str, str]:
    """This process's environment with those settings alone."""
    return {name: one for name, one in os.environ.items() if not name.startswith("ETT_")} | settings


def test_it_says_what_it_does(lines: list[str]) -> None:
    """A line for each database, with its migration and its range of job ids."""
    told = "\n".join(lines)
    assert 1 + SERVERS + 1 == len(lines)
    assert 1 + SERVERS == told.count(newest_revision())
    assert [str(number * IDS) for number in range(SERVERS)] == re.findall(r"job ids from (\d+)", told)


def test_again_changes_nothing(lines: list[str], urls: list[str]) -> None:
    """`db shard` and `migrate` may be run at any time, and do the same."""
    assert lines == list(set_up(urls[0], urls[1:]))
    settings = {"ETT_DATABASE_URL": urls[0], "ETT_SHARD_URLS": ",".join(urls[1:])}
    assert lines == run("migrate", **settings).stdout.splitlines()
    told = run("db", "shard", "--database-url", urls[0], "--servers", ",".join(urls[1:]))
    assert (0, lines) == (told.returncode, told.stdout.splitlines())


def test_the_joined_view_has_every_table(urls: list[str]) -> None:
    """A table that a migration adds is there without anybody's doing, with the columns that it has."""
    engine = open_pool(urls[0], size=1)
    with engine.connect() as conn:
        query = (
            "SELECT table_schema, table_name, string_agg(column_name || ' ' || data_type, ',' ORDER BY column_name)"
            f" FROM information_schema.columns WHERE table_schema IN ('{SCHEMA}', 'public') GROUP BY 1, 2"
        )
        there = {(schema, name): columns for schema, name, columns in conn.exec_driver_sql(query)}
    engine.dispose()
    for name in metadata.tables:
        if name not in AT_HOME:
            assert there["public", name] == there[SCHEMA, name], name


def test_other_servers_are_refused(urls: list[str], another: str) -> None:
    """In another order, of another number, or strange: a job must not be on two servers."""
    home, first, second, third = urls
    for servers in ([second, first, third], [first, second], [first, second, third, another], [home, first]):
        with pytest.raises(Invalid):
            list(set_up(home, servers))
    with pytest.raises(Invalid):
        list(set_up(another, [first, second, third]))
    for servers in ([second, first, third], [first, second]):
        with open_fleet(home, servers, size=2) as fleet, pytest.raises(Invalid):
            check_fleet(fleet)
    with open_fleet(home, urls[1:], size=2) as fleet:
        check_fleet(fleet)


def test_a_server_that_is_away_is_named(urls: list[str]) -> None:
    """Nothing is half done that the next run would not complete."""
    nowhere = make_url(urls[3]).set(database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(Unavailable, match="server 2 of 3"):
        list(set_up(urls[0], [urls[1], urls[2], nowhere]))


def test_a_database_with_jobs_is_not_made_a_part(another: str, urls: list[str]) -> None:
    """Its jobs would be looked for elsewhere."""
    migrate(another)
    engine = open_pool(another, size=1)
    with engine.begin() as conn:
        conn.exec_driver_sql("INSERT INTO jobs (job) VALUES ('j')")
    engine.dispose()
    with pytest.raises(Invalid, match="holds jobs already"):
        list(set_up(another, urls[1:]))


def test_a_part_of_a_fleet_is_not_served_alone(urls: list[str]) -> None:
    """It would answer with a part of the figures, and take jobs that are not its own."""
    for url in urls[:2]:
        engine = open_pool(url, size=1)
        with pytest.raises(Invalid, match="ETT_SHARD_URLS"):
            refuse_alone(engine)
        engine.dispose()
        told = run("serve", "--port", "0", ETT_DATABASE_URL=url)
        assert (2, True) == (told.returncode, "ETT_SHARD_URLS" in told.stderr)


def test_what_is_printed_holds_no_password() -> None:
    """The SQL for people's eyes; each table once."""
    told = "\n".join(statements(["postgresql://me:hush@a/x", "postgresql://me:hush@b/x"], shown=True))
    assert "hush" not in told
    assert "host 'a'" in told
    for name in set(metadata.tables) - set(AT_HOME):
        assert 1 == len(re.findall(rf"CREATE (?:TABLE|VIEW) {SCHEMA}\.{name} ", told)), name


def test_the_service_over_three_servers(urls: list[str]) -> None:
    """`serve` as a process: events in, books made by each server's worker, figures out."""
    settings = {
        "ETT_DATABASE_URL": urls[0],
        "ETT_SHARD_URLS": ",".join(urls[1:]),
        "ETT_LOG_LEVEL": "warning",
        "ETT_RETENTION_DAYS": "0",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_ett", "serve", "--port", "0"],
        env=environment(**settings), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith(LISTENS), line
        base = line.removeprefix(LISTENS).strip()
        jobs = {server_of(f"job-{number}", SERVERS): f"job-{number}" for number in range(20)}
        events = [
            {"type": "phase", "job": job, "attempt": "a", "rank": 0, "phase": "x", "seq": server, "start": NOW,
             "end": NOW + 60 * 10**9}
            for server, job in jobs.items()
        ]  # fmt: skip
        body = json.dumps({"agent": {"node": "n1", "incarnation": "i"}, "events": events}).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{base}/v1/events", body, headers)) as answer:
            assert SERVERS == json.load(answer)["accepted"]
        total = {"jobs": 0}
        while total["jobs"] < SERVERS:
            with urllib.request.urlopen(f"{base}/v1/fleet/ett") as answer:
                total = json.load(answer)
        assert SERVERS == total["jobs"]
    finally:
        stop(process)
        process.stdout.close()
    told = run("rebuild", **settings)
    assert (0, f"rebuilt {SERVERS} jobs\n") == (told.returncode, told.stdout)
    told = run("rebuild", "--job", jobs[1], **settings)
    assert (0, "rebuilt 1 job\n") == (told.returncode, told.stdout)
