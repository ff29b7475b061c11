"""What Postgres asks of which server: one job's is asked of one, and of sums only the sums travel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from fleet_ett.postgres.queries.booked import inside, total
from fleet_ett.postgres.queries.sums import pieces_of
from fleet_ett.postgres.shards.schema import IDS
from fleet_ett.postgres.tables import jobs
from fleet_ett.postgres.tables import ledger as cells
from fleet_ett.reads import HOUR_NS, Filters, Scope, Window
from tests.shards.fleet import SERVERS, FleetService

if TYPE_CHECKING:
    from sqlalchemy import Select, Subquery

T0 = 1_772_452_800_000_000_000
DAY = Window(T0, T0 + 24 * HOUR_NS)
_JOBS = "INSERT INTO jobs (job, cluster) SELECT 'job-{0}-' || n, 'c' || n % 4 FROM generate_series(1, 200) n"
_LEDGER = (
    "INSERT INTO ledger SELECT job_id, 1, {0} + hour * {1}::bigint, heading, 'p', 'trainer', false, 1, 8, 1, 8"
    " FROM jobs, generate_series(0, 23) hour, unnest(array['productive', 'startup', 'replay']) heading"
)


@pytest.fixture(scope="module", autouse=True)
def ledger(spread: FleetService) -> None:
    """A day of 200 jobs on each server: enough for the planner to choose with care."""
    for number, engine in enumerate(spread.engines):
        with engine.begin() as conn:
            conn.exec_driver_sql(_JOBS.format(number).replace("%", "%%"))
            conn.exec_driver_sql(_LEDGER.format(T0, HOUR_NS))
            conn.exec_driver_sql("ANALYZE jobs, ledger")


def test_one_job_by_its_id_is_planned_on_one_server(spread: FleetService) -> None:
    """The ranges of job ids leave the other servers out."""
    rows = booked(DAY)
    plan = explain(spread, select(total(rows.c.wall_ns)).where(rows.c.job_id == IDS + 5))
    assert {"ledger_1"} == set(re.findall(r"\bledger_\d", plan))


def test_fleet_sums_are_pushed_down(spread: FleetService) -> None:
    """By job and heading each server joins and adds up by itself, all at the same time."""
    rows = booked(DAY)
    keys = (jobs.c.cluster, rows.c.job_id, rows.c.heading)
    same = jobs.c.job_id == rows.c.job_id
    plan = explain(spread, select(*keys, total(rows.c.gpu_ns)).join_from(rows, jobs, same).group_by(*keys))
    pushed = re.findall(
        r"Async Foreign Scan[^>]*?Relations: Aggregate on \(\((.*?)\) INNER JOIN \((.*?)\)\)\n", plan
    )
    told = [sorted(part.split()[0] for part in parts) for parts in pushed]
    assert [[f"fleet.jobs_{number}", f"fleet.ledger_{number}"] for number in range(SERVERS)] == told


@pytest.mark.parametrize(
    "filters", [Filters(), Filters(cluster=("c1",), team=("", "t")), Filters(job=("job-0-1", "job-1-2"))]
)
def test_a_cut_hour_is_looked_up_by_each_server_itself(spread: FleetService, filters: Filters) -> None:
    """Once a server, and not once a job from afar."""
    (edge,) = pieces_of(Scope(Window(T0 + 5), filters), ()).edges
    plan = explain(spread, select(total(edge.c.wall_ns)))
    assert {"1"} == set(re.findall(r"Foreign Scan.*loops=(\d+)", plan))
    assert SERVERS == len(re.findall("Remote SQL: .*public.hour_segments", plan)), plan


def booked(window: Window) -> Subquery:
    """The cells of whole hours."""
    return select(cells).where(*inside(cells.c.hour_ns, window)).subquery("booked")


def explain(service: FleetService, query: Select[Any]) -> str:
    """The plan as it ran."""
    compiled = query.compile(service.engine, compile_kwargs={"literal_binds": True})
    with service.engine.connect() as conn:
        options = "ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF"
        plan = conn.exec_driver_sql(f"EXPLAIN ({options}) {compiled}".replace("%", "%%")).scalars()
        return "\n".join(plan)
