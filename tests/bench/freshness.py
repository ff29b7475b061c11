"""How old the books of a live fleet are: `python -m tests.bench.freshness [--jobs 500] [--rate 5000]`.

Starts an embedded server and a real `fleet-ett serve`; the agents of a fleet of live jobs, one node each, post what
they have every `--interval` seconds. Jobs are picked at random; from the moment a batch of theirs is acknowledged they
are asked for over REST until their books have its steps.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.server import EmbeddedServer
from tests.bench.serving import children_of, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECOND = 1_000_000_000
GOAL_S = 5.0
POLL_S = 0.25  # between two questions about a job: what is measured is too long by half of it
LINKS = 48  # connections that the agents share
TICKS_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Link:
    """One kept HTTP/1.1 connection."""

    port: int
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of an answer."""
        if self.writer is None or self.reader is None or self.reader.at_eof():  # the server ends idle ones
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        told = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\n" + ("Content-Encoding: gzip\r\n" if body else "") + "\r\n"
        )
        self.writer.write(told.encode() + body)
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            self.writer.close()
            self.writer = None
            return await self.ask(method, path, body)
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        answer = await self.reader.readexactly(length)
        if b"connection: close" in head.lower():
            self.writer.close()
            self.writer = None
        return int(head.split(None, 2)[1]), answer


@dataclass
class Agent:
    """The agent of a job's one node: its ranks report a step window each `window` ns. `until`: ns, what is told."""

    job: str
    ranks: int
    window: int
    until: int
    seq: int = 0
    step: int = 0

    def starts(self) -> list[dict[str, Any]]:
        """What is told of the job when it starts."""
        self.seq += 2
        return [
            {"seq": self.seq - 1, "type": "job", "job": self.job, "cluster": "c", "team": f"t{hash(self.job) % 9}"},
            {
                "seq": self.seq, "type": "attempt_start", "job": self.job, "attempt": "a0", "ts": self.until,
                "gpus": self.ranks, "world_size": self.ranks,
            },
        ]  # fmt: skip

    def body(self, now: int, events: list[dict[str, Any]] | None = None) -> tuple[int, bytes]:
        """How many events, and the body, of all windows that are over at `now` (ns)."""
        columns: dict[str, list[int]] = {
            name: [] for name in ("seq", "rank", "first", "last", "start", "end")
        }
        while self.until + self.window <= now:
            end = self.until + self.window
            for rank in range(self.ranks):
                self.seq += 1
                row = (self.seq, rank, self.step, self.step + 9, self.until, end)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
            self.until, self.step = end, self.step + 10
        told: dict[str, Any] = {"agent": {"node": self.job, "incarnation": self.job, "version": "1.0"}}
        told["events"] = events or []
        if columns["seq"]:
            told["batches"] = [{"type": "steps", "job": self.job, "attempt": "a0", "columns": columns}]
        size = len(columns["seq"]) + len(told["events"])
        return size, gzip.compress(json.dumps(told).encode(), 1)


@dataclass
class Fleet:
    """The agents, what they sent, and what was measured (s)."""

    port: int
    agents: list[Agent]
    posting: asyncio.Queue[Link]
    sent: int = 0
    refused: int = 0
    acknowledged: list[float] = field(default_factory=list)
    behind: float = 0.0
    fresh: list[float] = field(default_factory=list)

    async def post(self, agent: Agent, events: list[dict[str, Any]] | None = None) -> int | None:
        """Post what an agent has until it is acknowledged; steps of the job so far, None where it had nothing."""
        size, body = agent.body(time.time_ns(), events)
        steps = agent.step
        if not size:
            return None
        link = await self.posting.get()
        try:
            begin = time.perf_counter()
            while True:
                status, answer = await link.ask("POST", "/v1/events", body)
                if status == 200:
                    break
                assert status in (429, 503), answer
                self.refused += 1
                await asyncio.sleep(0.2)
            self.acknowledged.append(time.perf_counter() - begin)
        finally:
            self.posting.put_nowait(link)
        told = json.loads(answer)
        assert size == told["accepted"] + told["duplicates"], told
        self.sent += size
        return steps

    async def speak(self, agent: Agent, first_s: float, until: float, interval: float) -> None:
        """Post from `first_s` on every `interval` s until `until` (s, monotonic)."""
        at = time.perf_counter() + first_s
        while at < until:
            await asyncio.sleep(max(at - time.perf_counter(), 0))
            self.behind = max(self.behind, time.perf_counter() - at)
            await self.post(agent)
            at = max(at + interval, time.perf_counter())

    async def sample(self, agent: Agent, link: Link, patience_s: float) -> float:
        """Seconds from an acknowledged batch until the job's books hold it."""
        while (steps := await self.post(agent)) is None:  # noqa: ASYNC110 - time has to pass, nobody tells
            await asyncio.sleep(POLL_S)
        begin = time.perf_counter()
        while time.perf_counter() - begin < patience_s:
            await asyncio.sleep(POLL_S)
            status, answer = await link.ask("GET", f"/v1/jobs/{quote(agent.job, safe='')}")
            assert status == 200, answer
            if json.loads(answer)["steps"]["productive"] >= steps:
                return time.perf_counter() - begin
        return float("inf")

    async def watch(self, until: float, dice: random.Random, patience_s: float) -> None:
        """Sample one job after the other until `until` (s, monotonic)."""
        link = Link(self.port)
        while time.perf_counter() < until:
            self.fresh.append(await self.sample(dice.choice(self.agents), link, patience_s))

    async def all_booked(self, patience_s: float) -> None:
        """Return once the books of all jobs hold what was said so far."""
        link = Link(self.port)
        left, now = list(self.agents), time.time_ns()
        begin = time.perf_counter()
        while left:
            assert time.perf_counter() - begin < patience_s, f"{len(left)} jobs are not booked"
            _, answer = await link.ask("GET", f"/v1/jobs/{left[-1].job}")
            if (json.loads(answer).get("as_of") or 0) >= now:
                left.pop()
            else:
                await asyncio.sleep(POLL_S)


async def run(port: int, args: argparse.Namespace, cpu: Callable[[], dict[str, float]]) -> None:
    """Fill the history, let the fleet speak, print the table."""
    window = round(args.ranks * args.jobs / args.rate * SECOND)
    history = args.history * SECOND
    now = time.time_ns() - 120 * SECOND  # what is told meanwhile is told first
    agents = [Agent(f"job-{n:04}", args.ranks, 30 * SECOND, now - history) for n in range(args.jobs)]
    fleet = Fleet(port, agents, asyncio.Queue())
    for _ in range(LINKS):
        fleet.posting.put_nowait(Link(port))
    await each(agents, lambda one: fleet.post(one, one.starts()))
    begin = time.perf_counter()
    await fleet.all_booked(600)
    print(
        f"... {fleet.sent:,} events of history booked after {time.perf_counter() - begin:.1f} s",
        file=sys.stderr,
    )
    for one in agents:  # the seconds since are nobody's
        one.until, one.window = time.time_ns(), window
    fleet.sent, fleet.acknowledged = 0, []
    dice = random.Random(7)
    begin = time.perf_counter()
    until, used = begin + args.seconds, cpu()
    speaking = [fleet.speak(one, dice.random() * args.interval, until, args.interval) for one in agents]
    watching = [fleet.watch(until, dice, args.patience) for _ in range(args.watchers)]
    watched = asyncio.gather(*watching, progress(fleet, until))
    await asyncio.gather(*speaking)
    took = time.perf_counter() - begin
    cores = {name: (after - used[name]) / took for name, after in cpu().items()}
    await watched
    report(fleet, args, took, cores)


async def each(agents: list[Agent], work: Callable[[Agent], Awaitable[Any]]) -> None:
    """Do something for all agents, a few at once."""
    waiting = list(agents)

    async def go() -> None:
        while waiting:
            await work(waiting.pop())

    await asyncio.gather(*(go() for _ in range(8)))


async def progress(fleet: Fleet, until: float) -> None:
    """Say every ten seconds how far it is."""
    while time.perf_counter() < until:
        await asyncio.sleep(10)
        told = f"{fleet.sent:,} events, {len(fleet.fresh)} samples"
        if fleet.fresh:
            told += f", p95 {quantile(fleet.fresh, 0.95):.1f} s"
        print(f"... {told}", file=sys.stderr, flush=True)


def quantile(values: list[float], share: float) -> float:
    """The value that this share of the values is not above."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def report(fleet: Fleet, args: argparse.Namespace, took: float, used: dict[str, float]) -> None:
    """Print the table."""
    print(
        f"\n{args.jobs} live jobs of {args.ranks} ranks, a batch every {args.interval:g} s each,"
        f" serve --workers {args.workers}, {args.attribution} threads that book, {os.cpu_count()} cores"
    )
    print(f"{fleet.sent / took:,.0f} of {args.rate:,} events/s, {len(fleet.acknowledged) / took:,.0f} batches/s,"
          f" {fleet.refused} times sent again, agents at most {fleet.behind:.1f} s late")  # fmt: skip
    print("cores used: " + ", ".join(f"{name} {share:.2f}" for name, share in used.items()))
    print(f"\n{'seconds':40}{'samples':>8}{'p50':>8}{'p95':>8}{'max':>8}{'goal':>10}")
    for name, values, goal in (
        ("a batch acknowledged after", fleet.acknowledged, ""),
        ("in its job's books after", fleet.fresh, f"p95 < {GOAL_S:g}"),
    ):
        told = "".join(f"{one:8.2f}" for one in (quantile(values, 0.5), quantile(values, 0.95), max(values)))
        print(f"{name:40}{len(values):8}{told}{goal:>10}")


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of processes and of their children that are gone."""
    total = 0.0
    for pid in pids:
        try:
            told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(one) for one in told[11:15]) * TICKS_S
    return total


def busy_seconds() -> float:
    """CPU time of everybody on this machine."""
    told = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return (
        sum(int(one) for at, one in enumerate(told) if at not in (3, 4)) * TICKS_S
    )  # idle, waiting for disks


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rate", type=int, default=5_000, help="events a second of all jobs together")
    parser.add_argument("--ranks", type=int, default=8, help="of a job")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two batches of an agent")
    parser.add_argument(
        "--history", type=int, default=1800, help="seconds of each job that are booked before"
    )
    parser.add_argument("--workers", type=int, default=1, help="of fleet-ett serve")
    parser.add_argument("--attribution", type=int, default=1, help="threads that book jobs")
    parser.add_argument("--watchers", type=int, default=8, help="jobs that are sampled at once")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds until a sample counts as lost")
    args = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ett-bench-"))
    parent.chmod(0o711)
    try:
        with EmbeddedServer.start(parent / "data") as server:
            migrate(server.url)
            with serving(server.url, workers=args.workers, attribution=args.attribution) as service:
                postmaster = int(next(parent.rglob("postmaster.pid")).read_text().split()[0])

                def cpu() -> dict[str, float]:
                    return {
                        "service": cpu_seconds(service.family()),
                        "PostgreSQL": cpu_seconds([postmaster, *children_of(postmaster)]),
                        "this program": cpu_seconds([os.getpid()]),
                        "all there is on this machine": busy_seconds(),
                    }

                asyncio.run(run(service.port, args, cpu))
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
