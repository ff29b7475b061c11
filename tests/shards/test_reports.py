"""The home's reports show the jobs of all servers, to a role that may read nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from ett_collector.wire import to_wire
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.report import make_reader
from fleet_ett.postgres.shards.schema import REPORTS, SCHEMA
from fleet_ett.postgres.shards.setup import set_up
from tests.http.story import HOUR, T0, rollback

if TYPE_CHECKING:
    from tests.shards.fleet import FleetService

JOBS = [f"job-{number}" for number in range(9)]


def test_the_home_shows_all_servers(spread: FleetService, urls: list[str]) -> None:
    """Before and after the joined view is made anew, which drops and makes the reports."""
    for number, job in enumerate(JOBS):
        events = [to_wire(event) for event in rollback(job, node=f"n{number}", cluster="c1").events()]
        agent = {"node": f"n{number}", "incarnation": "only", "version": "1.0"}
        answer = spread.client.post("/v1/events", json={"agent": agent, "events": events})
        assert [] == answer.raise_for_status().json()["quarantined"]
    spread.make_books(T0 + 24 * HOUR)
    assert 1 < sum(bool(_count(url)) for url in urls[1:])  # they are on several servers
    with transaction(spread.fleet.home) as conn:
        make_reader(conn, "fleet_reader")
    home = make_url(urls[0]).set(drivername="postgresql", username="fleet_reader")
    for _ in range(2):
        with psycopg.connect(home.render_as_string(hide_password=False), autocommit=True) as reader:
            for name in REPORTS:
                reader.execute(f"SELECT * FROM {name}")
            found = reader.execute("SELECT job, ett FROM jobs ORDER BY job").fetchall()
            assert [(job, spread.job(job)["ett"]) for job in JOBS] == found
            ended = reader.execute("SELECT count(*), count(DISTINCT job) FROM incidents").fetchone()
            assert (len(JOBS), len(JOBS)) == ended
            assert [("n4",)] == reader.execute("SELECT node FROM nodes WHERE node = 'n4'").fetchall()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(f"SELECT * FROM {SCHEMA}.jobs")
        assert list(set_up(urls[0], urls[1:]))
    with transaction(spread.fleet.home) as conn:
        conn.exec_driver_sql("DROP OWNED BY fleet_reader; DROP ROLE fleet_reader")


def _count(url: str) -> int:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as conn:
        found = conn.execute("SELECT count(*) FROM report.jobs").fetchone()
        assert found is not None
        return int(found[0])
