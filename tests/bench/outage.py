"""A fleet's agents come back at once after an outage: `python -m tests.bench.outage [--agents 5000] [--kill]`.

The service stops; every agent fills its spool for an hour (a heartbeat and a window of steps of each of 8 ranks a
minute); the service starts, and all knock in the same second, each with its backlog as the bodies that an agent makes,
waiting as an agent does when it is told to come back. Meanwhile others post what they say live, and pages are read.
Prints how long the drain took and who waited how long; exits with 1 where an event was lost or stored twice, a refusal
did not say when to come back, or live posts waited longer than the goal. `--kill` kills workers while it lasts.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import psycopg

from ett_collector.agent.batches import body
from ett_collector.agent.ship import BATCH
from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.server import EmbeddedServer
from tests.bench.crowd import Crowd, Heard
from tests.bench.serving import children_of, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.serving import Serving

S = 1_000_000_000
HOUR_S, EVERY_S = 3600, 60
T0 = time.time_ns() // S * S - (HOUR_S + 600) * S
RANKS = 8
NODES_OF_JOB = 8
LIVE_GOAL_S = 5.0
BOOKED_BY_S = 300.0
PAGES = ("/healthz", "/readyz", "/metrics", "/v1/jobs", "/v1/fleet/ett")


@dataclass(frozen=True, slots=True)
class Tally:
    """What a crowd heard, how long its bodies took (s), and when the last one was taken (epoch s)."""

    heard: Heard
    took: list[float]
    ended: float


class Node:
    """What one node's agent says, in bodies. Stamps in s since the outage began."""

    def __init__(self, kind: str, number: int) -> None:
        self.name = f"{kind}-{number:05}"
        self._job = {"job": f"{kind}/{number // NODES_OF_JOB}", "attempt": "slurm:1:0"}
        self._first_rank = number % NODES_OF_JOB * RANKS
        self._seq = 0

    def start(self) -> bytes:
        """Before the outage: its job starts."""
        told = {"ts": T0 - 60 * S, "gpus": RANKS * NODES_OF_JOB, "world_size": RANKS * NODES_OF_JOB}
        return self._body([{"type": "attempt_start", **self._job, **told}])

    def spell(self, begin: int, seconds: int) -> Iterator[bytes]:
        """Everything of that time, in as many bodies as an agent makes of it."""
        events = [one for at in range(begin, begin + seconds, EVERY_S) for one in self._minute(at)]
        for first in range(0, len(events), BATCH):
            yield self._body(events[first : first + BATCH])

    def nothing(self) -> bytes:
        """What an agent posts first: it asks for the time."""
        return self._body([])

    def _minute(self, at: int) -> Iterator[dict[str, Any]]:
        begin, end = T0 + at * S, T0 + (at + EVERY_S) * S
        ranks = range(self._first_rank, self._first_rank + RANKS)
        for rank in ranks:
            steps = {"first": at, "last": at + EVERY_S - 1, "data_wait": S // 10 + rank, "slowest": S + at}
            yield {"type": "steps", **self._job, "rank": rank, "start": begin, "end": end, **steps}
        yield {"type": "heartbeat", "ts": end, "jobs": [{**self._job, "ranks": list(ranks)}]}

    def _body(self, events: list[dict[str, Any]]) -> bytes:
        for event in events:
            event["seq"] = self._seq
            self._seq += 1
        agent = {"node": self.name, "incarnation": f"life-of-{self.name}", "version": "0.1.0"}
        return body(agent, 0, time.time_ns(), [(agent["incarnation"], event) for event in events]).data


async def deliver_all(crowd: Crowd, spools: list[list[bytes]]) -> list[float]:
    """Every agent its bodies, one after the other, all agents at once; seconds of each agent."""

    async def come_back(bodies: list[bytes]) -> float:
        return sum([await crowd.deliver(one) for one in bodies])

    return list(await asyncio.gather(*map(come_back, spools)))


def return_all(port: int, spools: list[list[bytes]], links: int, told: Any) -> None:
    """The process of those that were cut off."""

    async def all_at_once() -> Tally:
        crowd = Crowd(port, links=links)
        took = await deliver_all(crowd, spools)
        return Tally(crowd.heard, took, time.time())

    told.put(asyncio.run(all_at_once()))


async def live_on(
    port: int, nodes: list[Node], rate: float, over: Any
) -> tuple[Tally, dict[str, list[float]]]:
    """Post minutes of nodes in turn, `rate` bodies a second whatever happens, and read pages, until it is over."""
    crowd, reader = Crowd(port, links=2000), Crowd(port, links=1)
    pages: dict[str, list[float]] = {page: [] for page in PAGES}
    sent: list[asyncio.Task[float]] = []
    begin = time.perf_counter()

    async def read() -> None:
        while not over.is_set():
            for page in PAGES:
                status, took = await reader.get(page)
                pages[page].append(took if status == 200 else float("inf"))
            await asyncio.sleep(0.2)

    reading = asyncio.create_task(read())
    while not over.is_set():
        number = len(sent)
        minute = number // len(nodes) * EVERY_S
        (one,) = nodes[number % len(nodes)].spell(HOUR_S + minute, EVERY_S)
        sent.append(asyncio.create_task(crowd.deliver(one)))
        await asyncio.sleep(max(0.0, begin + (number + 1) / rate - time.perf_counter()))
    took = list(await asyncio.gather(*sent))
    await reading
    return Tally(crowd.heard, took, time.time()), pages


def p95(seconds: list[float]) -> float:
    """The 95th percentile; 0 of nothing."""
    return sorted(seconds)[int(len(seconds) * 0.95)] if seconds else 0.0


def told_off(heard: Heard) -> str:
    """The answers, by status."""
    return ", ".join(f"{count:,} x {status or 'none'}" for status, count in sorted(heard.statuses.items()))


def killed(service: Serving, over: Any) -> int:
    """Kill one worker after the other until it is over; how many."""
    number = 0
    while not over.wait(4):
        workers = children_of(service.pid)
        os.kill(workers[number % len(workers)], signal.SIGKILL)
        number += 1
    return number


def booked_after(conninfo: str, begin: float) -> float:
    """Seconds since `begin` (epoch s) until nothing waits to be booked; infinite where that does not come."""
    with psycopg.connect(conninfo, autocommit=True) as conn:
        while time.time() < begin + BOOKED_BY_S:
            row = conn.execute("SELECT NOT EXISTS (SELECT FROM marks)").fetchone()
            if row is not None and row[0]:
                return time.time() - begin
            time.sleep(0.25)
    return float("inf")


def measure(server: EmbeddedServer, args: argparse.Namespace) -> bool:
    """Print the table; whether all is well."""
    migrate(server.url)
    away = [Node("away", number) for number in range(args.agents)]
    there = [Node("live", number) for number in range(args.live)]
    with serving(server.url, workers=args.workers) as service:
        before = asyncio.run(settled(service.port, [[node.start()] for node in (*away, *there)]))
    spools = [[node.nothing(), *node.spell(0, HOUR_S)] for node in away]
    kept = args.agents * HOUR_S // EVERY_S * (RANKS + 1)
    print(f"{args.agents:,} agents with {kept:,} events in spools of {megabytes(spools):.0f} MB", flush=True)
    told, over = multiprocessing.Queue(), multiprocessing.Event()  # type: ignore[var-annotated]
    with serving(server.url, workers=args.workers) as service:
        begin = time.time()
        crowd = multiprocessing.Process(
            target=return_all, args=(service.port, spools, args.at_once, told), daemon=True
        )
        crowd.start()
        back, live, pages, kills = asyncio.run(meanwhile(service, there, args, told, over))
        crowd.join()
        booked = booked_after(server.conninfo, begin)
    with psycopg.connect(server.conninfo) as conn:
        row = conn.execute("SELECT count(*), count(DISTINCT (source_id, seq)) FROM events").fetchone()
    assert row is not None
    said = len(away) + len(there) + kept + len(live.took) * (RANKS + 1)
    report(begin, back, live, pages, booked)
    if args.kill:
        print(f"workers killed meanwhile: {kills}")
    acknowledged = before.accepted + sum(one.accepted + one.duplicates for one in (back.heard, live.heard))
    print(
        f"events said {said:,}, acknowledged {acknowledged:,}, stored {row[0]:,}, of these distinct {row[1]:,}"
    )
    print(f"{'lost or doubled':28}{abs(said - row[1]) + row[0] - row[1]:9,}")
    right = (said, said, said) == (acknowledged, *row)
    silent = back.heard.unsaid + live.heard.unsaid
    return right and not silent and p95(live.took) <= LIVE_GOAL_S and booked < BOOKED_BY_S


async def settled(port: int, spools: list[list[bytes]]) -> Heard:
    """What is said before the outage."""
    crowd = Crowd(port, links=64)
    await deliver_all(crowd, spools)
    return crowd.heard


async def meanwhile(
    service: Serving, there: list[Node], args: argparse.Namespace, told: Any, over: Any
) -> tuple[Tally, Tally, dict[str, list[float]], int]:
    """What both crowds heard, how pages were answered, and how many workers were killed."""

    def wait() -> Tally:
        try:
            while not over.is_set():
                with suppress(Empty):
                    found: Tally = told.get(timeout=1)
                    return found
            msg = "stopped before everything was taken"
            raise RuntimeError(msg)
        finally:
            over.set()

    kills = asyncio.create_task(asyncio.to_thread(killed, service, over)) if args.kill else None
    back = asyncio.create_task(asyncio.to_thread(wait))
    try:
        live, pages = await live_on(service.port, there, args.rate, over)
    finally:
        over.set()
    return await back, live, pages, await kills if kills else 0


def megabytes(spools: list[list[bytes]]) -> float:
    """Of all bodies as they travel."""
    return sum(len(one) for bodies in spools for one in bodies) / 1e6


def report(begin: float, back: Tally, live: Tally, pages: dict[str, list[float]], booked: float) -> None:
    """Print who waited how long."""
    took = back.ended - begin
    print(f"\n{'drained after':28}{took:9.1f} s   {back.heard.accepted / took:,.0f} events/s")
    print(f"{'all of it booked after':28}{booked:9.1f} s")
    print(f"{'answers to them':28}  {told_off(back.heard)}")
    print(f"{'answers to live posts':28}  {told_off(live.heard)}")
    print(f"\n{'meanwhile':28}{'number':>9}{'p50':>9}{'p95':>9}{'worst':>9}{'goal':>9}")
    rows = {"live posts, until taken": live.took, **pages}
    for name, seconds in rows.items():
        middle, worst = sorted(seconds)[len(seconds) // 2], max(seconds)
        goal = f"{LIVE_GOAL_S:.1f} s" if seconds is live.took else ""
        print(f"{name:28}{len(seconds):9,}{middle:7.2f} s{p95(seconds):7.2f} s{worst:7.2f} s{goal:>9}")


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--live", type=int, default=1000, help="nodes that were never cut off")
    parser.add_argument("--rate", type=float, default=100, help="bodies a second that these post")
    parser.add_argument("--at-once", type=int, default=1000, help="connections of those that come back")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill -9 a process of the service every 4 s")
    args = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ett-bench-"))
    parent.chmod(0o711)
    try:
        with EmbeddedServer.start(parent / "data") as server:
            is_well = measure(server, args)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
