"""Readers over three servers: the answers of one server, to the last nanosecond."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import make_url, select

from fleet_ett.core.policy import Policy
from fleet_ett.http.body import parse
from fleet_ett.ingest import decode_batch, take_in
from fleet_ett.pieces import server_of
from fleet_ett.postgres.embedded.programs import find_bin_dir, wheel_bin_dir
from fleet_ett.postgres.tables import jobs
from fleet_ett.worker import book_due_jobs
from tests.http.service import Service, running
from tests.scenarios import all_scenarios
from tests.shards.fleet import SERVERS, FleetService, fleet_service
from tests.test_http_scenarios import as_of, deliveries, job_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from fleet_ett.postgres.server import EmbeddedServer

SCENARIOS = all_scenarios()[::2]  # those of the other half are as much alike
NOW = max(as_of(scenario) for scenario in SCENARIOS)
T0 = 1_772_452_800_000_000_000
HOUR = 3_600_000_000_000
WINDOWS: list[dict[str, int]] = [{}, {"from_": T0, "to": T0 + HOUR}, {"from_": T0 + 7, "to": T0 + HOUR + 9}]
PATHS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/fleet/ett", {}),
    *(("/v1/fleet/ett", {"by": by}) for by in ("cluster", "team", "job", "hour", "week")),
    *(("/v1/fleet/lost-time", {"by": by}) for by in ("component", "owner", "phase", "cause", "job", "day")),
    ("/v1/fleet/repeated-work", {}),
    ("/v1/jobs", {"limit": 1000}),
    ("/v1/incidents", {"limit": 1000}),
    ("/v1/components", {}),
    ("/v1/nodes", {"limit": 1000}),
    ("/v1/quarantine", {"limit": 1000}),
]
# Of the path and not of the books: when something came, and numbers of rows.
OF_THE_PATH = {"received", "last_seen", "id", "next", "as_of", "generated_at"}


@pytest.fixture(scope="module")
def single(engine: Engine) -> Iterator[Service]:
    """The same on one server."""
    with running(engine) as service:
        yield service


@pytest.fixture(scope="module", autouse=True)
def books(spread: FleetService, single: Service) -> None:
    """All scenarios as one fleet: nodes are shared, each job is a scenario's own."""
    for service in (spread, single):
        clock = itertools.count(NOW)  # what a node said last is told of it
        for scenario in SCENARIOS:
            lines = [renamed(scenario.name, line) for line in scenario.lines]
            for delivery in deliveries(lines, 1000):
                body = parse(delivery.body().encode(errors="surrogatepass"), "json")
                now = next(clock)
                take_in(decode_batch(body, now=now), service.app.state.store, now=now)
    spread.make_books(NOW)
    while book_due_jobs(single.engine, Policy(), clock=lambda: NOW):
        pass


def renamed(scenario: str, line: str) -> str:
    """A line of a scenario with its jobs and its speaker under names of their own; the text is kept otherwise."""
    line = re.sub(r'"job": ?"', f'"job": "{scenario}/', line)
    return re.sub(r'"incarnation": ?"', f'"incarnation": "{scenario}/', line)


def test_every_server_has_jobs(spread: FleetService) -> None:
    """The comparison says something: each of the three owns many."""
    for number, engine in enumerate(spread.engines):
        with engine.connect() as conn:
            keys = list(conn.execute(select(jobs.c.job)).scalars())
        assert len(keys) > 10
        assert {number} == {server_of(key, SERVERS) for key in keys}


@pytest.mark.parametrize("window", range(len(WINDOWS)))
@pytest.mark.parametrize(("path", "params"), PATHS, ids=str)
def test_answers_are_those_of_one_server(
    spread: FleetService, single: Service, path: str, params: dict[str, Any], window: int
) -> None:
    """Sums over all jobs, lists, counts: equal to the last nanosecond."""
    told = {**params, **WINDOWS[window]}
    assert steady(single.get(path, **told)) == steady(spread.get(path, **told))


def test_a_job_is_the_same(spread: FleetService, single: Service) -> None:
    """Detail, ledger and goodput of some jobs of each server, from the one that owns them."""
    keys = [row["job"] for row in single.pages("/v1/jobs", limit=1000) if row["error"] is None]
    chosen = [[key for key in keys if server_of(key, SERVERS) == number][:8] for number in range(SERVERS)]
    for job in itertools.chain(*chosen):
        assert steady(job_answer(single, job)) == steady(job_answer(spread, job)), job


def test_the_metrics_page_is_that_of_one_server(spread: FleetService, single: Service) -> None:
    """Counters of all servers, added up."""
    one, three = (page(service) for service in (single, spread))
    assert one == three


def test_pages_hold_each_job_once(spread: FleetService, single: Service) -> None:
    """Lists over several servers can be turned page by page."""
    keys = [[row["job"] for row in service.pages("/v1/jobs", limit=7)] for service in (single, spread)]
    assert sorted(keys[0]) == sorted(keys[1])


def test_the_owner_of_a_component_is_known_to_all(spread: FleetService, single: Service) -> None:
    """Owners stand at home alone; a job's incidents, which its own server tells, name them too."""
    row = next(one for one in single.pages("/v1/incidents", limit=1000))
    mapped = "INSERT INTO owners VALUES (%(component)s, 'somebody')"
    for engine in (spread.fleet.home, single.engine):
        with engine.begin() as conn:
            conn.exec_driver_sql(mapped, {"component": row["component"]})
    for params in ({"job": row["job"]}, {}):
        told = [service.get("/v1/incidents", limit=1000, **params)["items"] for service in (single, spread)]
        assert "somebody" in {one["owner"] for one in told[0]}
        assert steady(told[0]) == steady(told[1])


def test_a_database_moves_to_another_server(
    single: Service, urls: list[str], postgres_servers: list[EmbeddedServer]
) -> None:
    """Dumped, restored elsewhere, named by its new URL at its old place: `fleet-ett migrate` finds it there."""
    bin_dir = find_bin_dir(os.environ) or wheel_bin_dir()
    name = make_url(urls[2]).database
    moved = make_url(urls[0]).set(database=f"{name}_moved")
    with psycopg.connect(postgres_servers[0].conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {moved.database}")
    before, after = (
        url.set(drivername="postgresql").render_as_string(hide_password=False)
        for url in (make_url(urls[2]), moved)
    )
    dump = subprocess.run([bin_dir / "pg_dump", "--no-owner", before], capture_output=True, check=True).stdout
    subprocess.run([bin_dir / "psql", "--quiet", "-v", "ON_ERROR_STOP=1", after], input=dump, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    with psycopg.connect(before) as gone:
        gone.execute("TRUNCATE jobs CASCADE")  # nobody is to ask it any more
    with fleet_service(urls[0], [urls[1], moved.render_as_string(hide_password=False), urls[3]]) as service:
        for path in ("/v1/fleet/ett", "/v1/incidents", "/v1/nodes"):
            assert steady(single.get(path, limit=1000)) == steady(service.get(path, limit=1000))
    with psycopg.connect(postgres_servers[0].conninfo, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {moved.database} WITH (FORCE)")


def steady(value: Any) -> Any:
    """An answer without what is of the path; lists in an order of their own."""
    if isinstance(value, dict):
        return {name: steady(one) for name, one in value.items() if name not in OF_THE_PATH}
    if isinstance(value, list):
        return sorted((steady(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


def page(service: Service) -> list[str]:
    """The samples of the metrics page, but for ages."""
    lines = service.ask("/metrics").text.splitlines()
    return sorted(line for line in lines if not line.startswith("#") and "_lag_seconds" not in line)
