"""What several servers cost and give on one machine: `python -m tests.bench.shards [--servers 3]`.

The same batches are stored on one server and, each by its owner, on several; then the same books are asked on one
server and through the joined view of several. All servers share this machine's cores, so writing shows the price of
the division and not what more machines would give; reading shows what is pushed down and what travels.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.ingest import decode_batch
from fleet_ett.pieces import server_of
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.queries.fleet import sum_ett
from fleet_ett.postgres.queries.losses import sum_lost_time
from fleet_ett.postgres.queries.timeline import sum_ledger
from fleet_ett.postgres.reads import snapshot
from fleet_ett.postgres.refill import make_sums_anew
from fleet_ett.postgres.server import EmbeddedServer
from fleet_ett.postgres.shards.servers import check_fleet, open_fleet
from fleet_ett.postgres.shards.setup import set_up
from fleet_ett.postgres.shards.store import FleetStore
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.reads import HOUR_NS, Page, Scope, Window
from tests.bench.ingest import phases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Engine

    from fleet_ett.ingest import Batch, Store

T0 = 1_772_452_800_000_000_000
THREADS = 4
TRIES = 5
CELLS = ("productive", "startup", "replay", "unknown")
ATTEMPTS = (
    "INSERT INTO attempts (job_id, attempt_id, attempt, first_ns, last_ns, index) OVERRIDING SYSTEM VALUE"
    " SELECT job_id, 1, 'a', start_ns, end_ns, 0 FROM jobs"
)
JOBS = (
    "INSERT INTO jobs (job, cluster, team, start_ns, end_ns, as_of_ns) SELECT key, 'c' || n %% 4, 't' || n %% 20,"
    " %(start)s, %(end)s, %(end)s FROM unnest(CAST(%(keys)s AS text[])) WITH ORDINALITY AS k (key, n)"
)
SEGMENTS = (
    "INSERT INTO segments (job_id, attempt_id, start_ns, end_ns, heading, phase, component, repeated, gpus, settled)"
    " SELECT job_id, 1, at, at + %(length)s, heading, heading, 'trainer', false, 8, true FROM jobs,"
    " generate_series(CAST(%(start)s AS bigint), %(end)s - 1, %(hour)s) hour,"
    " unnest(CAST(%(headings)s AS text[])) WITH ORDINALITY AS p (heading, n),"
    " LATERAL (SELECT hour + (n - 1) * %(length)s AS at) a ORDER BY at"
)
LEDGER = (
    "INSERT INTO ledger SELECT job_id, attempt_id, start_ns - start_ns %% %(hour)s, heading, phase, component,"
    " repeated, sum(end_ns - start_ns), sum((end_ns - start_ns) * gpus), sum(end_ns - start_ns),"
    " sum((end_ns - start_ns) * gpus) FROM segments GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 3"
)


def batches(name: str, events: int, size: int) -> list[Batch]:
    """Checked batches, each of a node of its own and one of 24 jobs."""
    out = []
    for n in range(events // size):
        told = phases(f"{name}-{n % 24}", size, random.Random(n))
        body = {"agent": {"node": f"{name}-{n:05}", "incarnation": f"{name}-{n}"}, "events": told}
        out.append(decode_batch(body, now=time.time_ns()))
    return out


def rounds(name: str, nodes: int, times: int) -> list[list[Batch]]:
    """Checked batches of 10 events: what so many nodes say, again and again."""
    told = {node: phases(f"{name}-{node % 24}", 10 * times, random.Random(node)) for node in range(nodes)}
    return [
        [
            decode_batch(
                {
                    "agent": {"node": f"{name}-{node:05}", "incarnation": f"{name}-{node}"},
                    "events": events[10 * turn : 10 * turn + 10],
                },
                now=time.time_ns(),
            )
            for node, events in told.items()
        ]
        for turn in range(times)
    ]


def store_all(store: Store, told: Sequence[Batch]) -> float:
    """Rows/s until every batch is durable."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(lambda batch: store(batch, now=time.time_ns()).accepted, told))
    return done / (time.perf_counter() - begin)


def bytes_an_event(engine: Engine) -> float:
    """Size of the table of events by its rows."""
    query = (
        "SELECT sum(pg_total_relation_size(inhrelid)) / (SELECT count(*) FROM events)"
        " FROM pg_inherits WHERE inhparent = 'events'::regclass"
    )
    with engine.connect() as conn:
        return float(conn.exec_driver_sql(query).scalar_one())


def fill(engine: Engine, keys: Sequence[str], hours: int) -> None:
    """Books of those jobs, which all run all the time: a segment and a cell an hour and heading, and their sums."""
    told = {
        "keys": list(keys), "start": T0, "end": T0 + hours * HOUR_NS, "hour": HOUR_NS,
        "length": HOUR_NS // len(CELLS), "headings": list(CELLS),
    }  # fmt: skip
    with engine.begin() as conn:
        conn.exec_driver_sql("TRUNCATE jobs, attempts, ledger, segments CASCADE")
        for statement in (JOBS, ATTEMPTS, SEGMENTS, LEDGER):
            conn.exec_driver_sql(statement, told)
    make_sums_anew(engine)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("VACUUM ANALYZE")


def by_cluster(conn: Connection, window: Window) -> None:
    """The reader behind `/v1/fleet/ett?by=cluster`."""
    assert sum_ett(conn, Scope(window), ["cluster"], Page())


def by_cluster_and_team(conn: Connection, window: Window) -> None:
    """The reader behind `/v1/fleet/ett?by=cluster,team`: from the rows of jobs."""
    assert sum_ett(conn, Scope(window), ["cluster", "team"], Page())


def by_component(conn: Connection, window: Window) -> None:
    """The reader behind `/v1/fleet/lost-time`."""
    assert sum_lost_time(conn, Scope(window), ["component"], Page())


def one_job(conn: Connection, window: Window) -> None:
    """The reader behind `/v1/jobs/{job}/ledger`; the service asks the job's owner alone."""
    assert sum_ledger(conn, "job-1", Scope(window), ["phase"])


def milliseconds(engine: Engine, ask: Callable[[Connection, Window], None], window: Window) -> float:
    """The best of some tries, warm."""
    took = []
    with snapshot(engine) as conn:
        for _ in range(TRIES):
            begin = time.perf_counter()
            ask(conn, window)
            took.append(time.perf_counter() - begin)
    return min(took) * 1000


def main() -> None:
    """Measure on servers of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=5_000, help="events of a batch")
    parser.add_argument("--jobs", type=int, default=3_000)
    parser.add_argument("--hours", type=int, default=48)
    args = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ett-bench-"))
    parent.chmod(0o711)
    try:
        with ExitStack() as stack:
            names = ["single", "home", *(f"server{number}" for number in range(args.servers))]
            single, home, *several = [
                stack.enter_context(EmbeddedServer.start(parent / name)).url for name in names
            ]
            migrate(single)
            for line in set_up(home, several):
                print(f"... {line}", file=sys.stderr)
            alone = open_pool(single)
            stack.callback(alone.dispose)
            fleet = stack.enter_context(open_fleet(home, several, size=10))
            check_fleet(fleet)
            stores: list[tuple[str, Store]] = [
                ("one server", PostgresStore(alone)), (f"{args.servers} servers, by owner", FleetStore(fleet)),
            ]  # fmt: skip
            print(f"\n{'stored, checked batches of ' + str(args.size):40}{'rows/s':>12}")
            for _, store in stores:
                store_all(store, batches("warm", 4 * args.size * THREADS, args.size))
            told = batches("load", args.events, args.size)
            for name, store in stores:
                print(f"{name:40}{store_all(store, told):12,.0f}")
            told_often = rounds("often", 250, 5)
            print(f"\n{'stored, batches of 10 of known nodes':40}{'batches/s':>12}")
            for name, store in stores:
                store_all(store, told_often[0])
                speed = [store_all(store, turn) / 10 for turn in told_often[1:]]
                print(f"{name:40}{sum(speed) / len(speed):12,.0f}")
            print(f"{'bytes an event on disk, indexes too':40}{bytes_an_event(alone):12,.0f}")
            keys = [f"job-{number}" for number in range(args.jobs)]
            fill(alone, keys, args.hours)
            for server in fleet.servers:
                fill(
                    server.engine,
                    [key for key in keys if server_of(key, args.servers) == server.number],
                    args.hours,
                )
            window = Window(T0 + HOUR_NS, T0 + (args.hours - 1) * HOUR_NS)
            edges = Window(T0 + 5, T0 + args.hours * HOUR_NS - 5)
            cells = args.jobs * args.hours * len(CELLS)
            print(f"\n{f'{args.jobs:,} jobs, {cells:,} cells, warm, ms':40}{'one server':>12}{'joined':>12}")
            for name, ask, asked in (
                ("fleet ETT by cluster, whole hours", by_cluster, window),
                ("fleet ETT by cluster, cut hours", by_cluster, edges),
                ("fleet ETT by cluster and team, whole hours", by_cluster_and_team, window),
                ("fleet ETT by cluster and team, cut hours", by_cluster_and_team, edges),
                ("lost time by component, cut hours", by_component, edges),
                ("one job's ledger by phase", one_job, window),
            ):
                times = [milliseconds(engine, ask, asked) for engine in (alone, fleet.joined)]
                print(f"{name:40}{times[0]:12.1f}{times[1]:12.1f}", flush=True)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
