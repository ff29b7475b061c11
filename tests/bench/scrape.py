"""What a scrape of `/metrics` costs, by the number of live jobs: `python -m tests.bench.scrape [--jobs 10 1000 10000]`.

For each number a database of its own is filled by the product: events of so many jobs of 5 clusters with 2 teams each,
every one failed once and live again, are stored and booked; the last once more with 20 teams a cluster. A real
`fleet-ett serve` is then asked over HTTP, in the format that Prometheus asks for. Printed: p50, p95, their ratio to the
first row, size, series, and about how many rows a scrape had Postgres read by scanning tables (`pg_stat_user_tables`).
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from fleet_ett.postgres import rollups
from fleet_ett.postgres.server import EmbeddedServer
from fleet_ett.postgres.store import PostgresStore
from tests.bench.attribution import SECOND, Job, booked, database
from tests.bench.readers import percentile
from tests.bench.serving import serving

GOAL_MS = 50
WARM = 3
CLUSTERS, TEAMS, MORE_TEAMS = 5, 2, 20
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
SCANNED = "SELECT relname, seq_tup_read FROM pg_stat_user_tables"


@dataclass(frozen=True, slots=True)
class Found:
    """What scrapes of a fleet came to."""

    jobs: int
    teams: int
    times: list[float]
    size: int
    series: int
    scanned: dict[str, int]


def live_jobs(count: int, teams: int, now: int) -> list[Job]:
    """Jobs that failed once and train again at `now` (ns)."""
    out = []
    for number in range(count):
        job = Job(f"job-{number:05}", now - 1800 * SECOND, ranks=2)
        names = {"cluster": f"cluster-{number % CLUSTERS}", "team": f"team-{number // CLUSTERS % teams:02}"}
        job.events.append({"seq": 0, "type": "job", "job": job.name, **names})
        job.begin()
        job.train(1, 300)
        job.fail(5)
        job.begin()
        job.train(1, (now - job.at) // SECOND)
        out.append(job)
    return out


def measured(server: EmbeddedServer, count: int, teams: int, rounds: int) -> Found:
    """Fill a database and scrape it."""
    now, name = time.time_ns() // SECOND * SECOND, f"jobs_{count}_{teams}"
    with database(server, name) as engine:
        store, begin = PostgresStore(engine), time.perf_counter()
        for job in live_jobs(count, teams, now):
            job.hand_in(store)
        booked(engine, now)
        rollups.fold(engine)
        with engine.connect() as conn:
            conn.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")
        url = engine.url.render_as_string(hide_password=False)
        print(f"... {count:,} jobs stored and booked in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    with serving(url, attribution=0) as service, psycopg.connect(server.conninfo, dbname=name) as conn:
        conn.autocommit = True
        before = dict(conn.execute(SCANNED).fetchall())
        times, page = scrapes(service.port, rounds)
        time.sleep(2)  # a backend tells its counts about once a second, when it has something to do
        scrapes(service.port, 0)
        after = dict(conn.execute(SCANNED).fetchall())
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    read = {one: (rows - before.get(one, 0)) // (rounds + WARM) for one, rows in after.items()}
    return Found(count, teams, times, len(page), series, {one: rows for one, rows in read.items() if rows})


def scrapes(port: int, rounds: int) -> tuple[list[float], bytes]:
    """How long each took (s), and the last page."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, page = [], b""
    for at in range(rounds + WARM):
        begin = time.perf_counter()
        link.request("GET", "/metrics", headers={"Accept": ACCEPT})
        answer = link.getresponse()
        page = answer.read()
        if at >= WARM:  # the first ones warm connections and caches
            times.append(time.perf_counter() - begin)
        assert answer.status == 200, page
    link.close()
    return times, page


def report(rows: list[Found]) -> None:
    """Print the table; what misses its goal is marked."""
    head = f"{'live jobs':>9} {'teams':>5} {'p50 ms':>8} {'p95 ms':>8} {'goal':>5} {'ratio':>6}"
    print(f"\n{head} {'bytes':>9} {'series':>7}  rows scanned")
    for one in rows:
        half, most = percentile(one.times, 0.5), percentile(one.times, 0.95)
        ratio = half / percentile(rows[0].times, 0.5)
        told = ", ".join(f"{name} {count}" for name, count in sorted(one.scanned.items())) or "none"
        cells = (
            f"{one.jobs:9,} {one.teams:5} {half:8.1f} {most:8.1f} {GOAL_MS:5}{'!' if most > GOAL_MS else ' '}"
        )
        print(f"{cells} {ratio:5.2f} {one.size:9,} {one.series:7,}  {told}")
    print(f"p95 of the last: {percentile(rows[-1].times, 0.95):.1f} ms")


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ett-bench-"))
    parent.chmod(0o711)
    try:
        with EmbeddedServer.start(parent / "data") as server:
            rows = [measured(server, count, TEAMS, args.rounds) for count in args.jobs]
            report([*rows, measured(server, args.jobs[-1], MORE_TEAMS, args.rounds)])
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
