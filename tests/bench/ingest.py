"""Ingest's speed in one run, against raw binary COPY: `python -m tests.bench.ingest [--workers 2]`.

Starts an embedded server and a real `fleet-ett serve --workers 2`, posts gzip JSON from several threads and prints
rows/s from HTTP to durable: bulk form, row form, bulk with every tenth batch sent again; then what COPY alone
does with the same rows into the same table; then the start-up burst of a 16,384-rank restart until it is booked.
Goals are ratios of the same run.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from fleet_ett.postgres.event_rows import COLUMNS
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.server import EmbeddedServer
from tests.bench.serving import serving

SECOND = 1_000_000_000
T0 = time.time_ns() // SECOND * SECOND - 7200 * SECOND
NAMES = (
    "node_prolog", "image_pull", "mounts_and_secrets", "launcher_start", "rendezvous", "process_import",
    "device_init", "process_group_init", "preproc_creation", "model_build", "sharding_plan", "plugin_init",
    "checkpoint_load", "data_warmup", "compile_cold", "kernel_autotune", "own_1", "own_2", "own_3", "own_4",
)  # fmt: skip
CHOSEN = ", ".join(COLUMNS)
_OUT = f"COPY (SELECT {CHOSEN} FROM events) TO STDOUT (FORMAT BINARY)"
_IN = f"COPY events ({CHOSEN}) FROM STDIN (FORMAT BINARY)"


@dataclass
class Load:
    """Bodies to post and how many events they hold; `rows`: those that are stored."""

    bodies: list[bytes]
    events: int
    rows: int


def phases(job: str, size: int, dice: random.Random) -> list[dict[str, Any]]:
    """What a node's ranks say of one start-up, again and again until there are `size` events."""
    out: list[dict[str, Any]] = []
    for seq in range(size):
        begin = T0 + seq * SECOND // 4 + dice.randrange(SECOND)
        out.append(
            {
                "type": "phase",
                "job": job,
                "attempt": "slurm:8812:1",
                "rank": seq // len(NAMES) % 8,
                "phase": NAMES[seq % len(NAMES)],
                "start": begin,
                "end": begin + dice.randrange(SECOND, 5 * SECOND),
                "seq": seq,
            }
        )
    return out


def body(node: str, events: list[dict[str, Any]], *, bulk: bool) -> bytes:
    """A body as an agent sends it, in bulk form: constants once, the rest in columns."""
    told: dict[str, Any] = {"agent": {"node": node, "incarnation": node, "version": "1.0"}}
    if bulk:
        names = ("rank", "phase", "start", "end", "seq")
        columns = {name: [event[name] for event in events] for name in names}
        constants = {name: events[0][name] for name in ("type", "job", "attempt")}
        told["batches"] = [{**constants, "columns": columns}]
    else:
        told["events"] = events
    return gzip.compress(json.dumps(told).encode(), 1)


def load(name: str, events: int, size: int, *, bulk: bool = True, again: float = 0.0) -> Load:
    """Bodies of `size` events, each of a node of its own; a share of them is there twice."""
    dice = random.Random(7)
    bodies = []
    for n in range(events // size):
        node = f"{name}-{n:05}"
        bodies.append(body(node, phases(f"{name}-{n % 8}", size, dice), bulk=bulk))
    repeats = dice.sample(bodies, round(len(bodies) * again))
    for one in repeats:
        bodies.insert(dice.randrange(bodies.index(one) + 1, len(bodies) + 1), one)
    return Load(bodies, len(bodies) * size, (len(bodies) - len(repeats)) * size)


def post(port: int, one: Load, threads: int) -> float:
    """Seconds until every body of the load is acknowledged."""

    def send(number: int) -> int:
        taken = 0
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        for item in one.bodies[number::threads]:
            while True:
                link.request("POST", "/v1/events", item, headers)
                answer = link.getresponse()
                told = answer.read()
                if answer.status == 200:
                    break
                assert answer.status in (429, 503), told
                time.sleep(0.1)
            counted = json.loads(told)
            assert [] == counted["quarantined"]
            taken += counted["accepted"]
        link.close()
        return taken

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        taken = sum(pool.map(send, range(threads)))
    took = time.perf_counter() - begin
    assert one.rows == taken, (one.rows, taken)
    return took


def copy_alone(conninfo: str, size: int, links: int) -> float:
    """Rows/s of the stored rows copied again, by several connections, `size` rows a commit; best of three."""
    with psycopg.connect(conninfo) as conn, conn.cursor() as cursor, cursor.copy(_OUT) as copy:
        pieces = [bytes(piece) for piece in copy]
    head, rows = pieces[0][:19], [pieces[0][19:], *pieces[1:-1]]
    end = pieces[-1]
    rows = [row for row in rows if row]
    chunks = [head + b"".join(rows[at : at + size]) + end for at in range(0, len(rows), size)]

    def write(number: int) -> None:
        with psycopg.connect(conninfo) as conn:
            for chunk in chunks[number::links]:
                with conn.cursor() as cursor, cursor.copy(_IN) as copy:
                    copy.write(chunk)
                conn.commit()

    took = []
    for _ in range(3):
        with psycopg.connect(conninfo) as conn:
            conn.execute("TRUNCATE events")
        begin = time.perf_counter()
        with ThreadPoolExecutor(links) as pool:
            list(pool.map(write, range(links)))
        took.append(time.perf_counter() - begin)
    return len(rows) / min(took)


def burst(nodes: int, ranks: int) -> Load:
    """The start-up of one restart: a body for each node, every rank with every phase."""
    size = ranks * len(NAMES)
    bodies = []
    for n in range(nodes):
        node = f"burst-{n:05}"
        events = phases("burst", size, random.Random(n))
        for at, event in enumerate(events):
            event["rank"] = n * ranks + at // len(NAMES)
        bodies.append(body(node, events, bulk=True))
    return Load(bodies, nodes * size, nodes * size)


def booked(conninfo: str, job: str) -> bool:
    """Whether all marks of the job are booked."""
    with psycopg.connect(conninfo, autocommit=True) as conn:
        query = (
            "SELECT as_of_ns IS NOT NULL AND NOT EXISTS (SELECT FROM marks m WHERE m.job_id = j.job_id)"
            " AND NOT EXISTS (SELECT FROM attempts a WHERE a.job_id = j.job_id AND a.dirty)"
            " FROM jobs j WHERE job = %s"
        )
        row = conn.execute(query, (job,)).fetchone()
    return row is not None and bool(row[0])


def measure(server: EmbeddedServer, args: argparse.Namespace) -> None:
    """Print the table."""
    migrate(server.url)
    warm = load("warm", 4 * args.size * args.threads, args.size)
    loads = [
        ("bulk form", 0.60, load("bulk", args.events, args.size)),
        ("row form", 0.25, load("rows", args.events // 2, args.size, bulk=False)),
        ("bulk, 10% sent again", 0.40, load("again", args.events, args.size, again=0.1)),
    ]
    found = []
    with serving(server.url, workers=args.workers, attribution=0) as service:
        post(service.port, warm, args.threads)
        for name, goal, one in loads:
            found.append((name, goal, one.events / post(service.port, one, args.threads)))
            print(f"... {name}: {found[-1][2]:,.0f} events/s", file=sys.stderr)
    alone = copy_alone(server.conninfo, args.size, 2)
    print(f"\n{args.workers} workers, {args.threads} posting threads, {args.size} events a body, gzip JSON")
    print(f"\n{'what':32}{'events/s':>12}{'of COPY':>10}{'goal':>8}")
    print(f"{'binary COPY, 2 connections':32}{alone:12,.0f}{'':>10}{'':>8}")
    for name, goal, speed in found:
        print(f"{name:32}{speed:12,.0f}{speed / alone:10.0%}{goal:8.0%}")
    with psycopg.connect(server.conninfo) as conn:
        conn.execute("TRUNCATE events, marks")
        conn.execute("UPDATE attempts SET dirty = false")
    storm = burst(args.nodes, 8)
    with serving(server.url, workers=args.workers) as service:
        begin = time.perf_counter()
        took = post(service.port, storm, args.threads)
        while not booked(server.conninfo, "burst"):
            time.sleep(0.1)
        whole = time.perf_counter() - begin
    print(f"\nburst of {storm.events:,} events in {len(storm.bodies):,} bodies")
    print(f"{'acknowledged after':32}{took:10.1f} s")
    print(f"{'booked after':32}{whole:10.1f} s{'':10}{'20 s':>8}")


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=5_000, help="events of a body")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=2048, help="nodes of the burst, 8 ranks each")
    args = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ett-bench-"))
    parent.chmod(0o711)
    try:
        with EmbeddedServer.start(parent / "data") as server:
            measure(server, args)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
