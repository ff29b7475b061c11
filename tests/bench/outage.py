"""5,000 agents come back after an hour without the service: `python -m tests.bench.outage [--agents 500]`.

Each agent has an hour of spool as several bodies, sends one at a time, and comes back with jitter no sooner than
`Retry-After` says, as the real one does; a few hundred are on their way at once. Meanwhile other agents report what
happens now. Prints how long it took, and how long those waited; exits with 1 where an event was lost or stored twice.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.server import EmbeddedServer
from tests.bench.serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable

S = 1_000_000_000
T0 = time.time_ns() // S * S - 3600 * S
RANKS, WINDOW_S, BEAT_S = 8, 60, 60
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0  # of an agent, between two tries


def spool(agent: int, pieces: int) -> list[bytes]:
    """An hour of a node: a window of steps a minute for each rank, and heartbeats; in `pieces` bodies."""
    job, node = f"job-{agent // 64:04}", f"node-{agent:05}"
    name = {"agent": {"node": node, "incarnation": f"life-{agent}", "version": "1.0"}}
    seq, out = 0, []
    windows = 3600 // WINDOW_S // pieces
    for piece in range(pieces):
        events: list[dict[str, Any]] = []
        columns: dict[str, list[int]] = {key: [] for key in ("rank", "first", "last", "start", "end", "seq")}
        for at in range(piece * windows, (piece + 1) * windows):
            start = T0 + at * WINDOW_S * S
            for rank in range(RANKS):
                values = (agent % 64 * RANKS + rank, at * 30, at * 30 + 29, start, start + WINDOW_S * S, seq)
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
                seq += 1
            jobs = [{"job": job, "attempt": "a", "ranks": [agent % 64 * RANKS + r for r in range(RANKS)]}]
            events.append({"type": "heartbeat", "ts": start, "jobs": jobs, "seq": seq})
            seq += 1
        bulk = {"type": "steps", "job": job, "attempt": "a", "columns": columns}
        out.append(gzip.compress(json.dumps({**name, "events": events, "batches": [bulk]}).encode(), 1))
    return out


def now(agent: int, seq: int) -> bytes:
    """What an agent without a backlog says at this moment."""
    node, stamp = f"live-{agent:03}", time.time_ns()
    jobs = [{"job": "live", "attempt": "a", "ranks": [agent]}]
    told = {"type": "heartbeat", "ts": stamp, "jobs": jobs, "seq": seq}
    name = {"node": node, "incarnation": node, "version": "1.0"}
    return gzip.compress(json.dumps({"agent": name, "events": [told]}).encode(), 1)


class Link:
    """One kept connection; plain HTTP/1.1, so that thousands of agents cost this machine little."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> tuple[int, float, bytes]:
        """The status, seconds of `Retry-After`, and the answer. Raises `OSError` for a lost connection."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            head = (
                "POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            fields = dict(line.split(": ", 1) for line in told.split("\r\n")[1:] if line)
            answer = await reader.readexactly(int(fields["content-length"]))
        except asyncio.IncompleteReadError as error:
            self.close()
            raise ConnectionResetError from error
        except OSError:
            self.close()
            raise
        return int(told.split()[1]), float(fields.get("retry-after", 0)), answer

    def close(self) -> None:
        """Give the connection up."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def deliver(
    link: Link, make: Callable[[], bytes], answers: Counter[str], turn: asyncio.Semaphore
) -> int:
    """Post one body until it is taken, as an agent does; the events that were accepted."""
    wait = FIRST_WAIT_S
    while True:
        async with turn:
            try:
                status, after, told = await link.post(make())
            except OSError as error:
                status, after, told = 0, 0.0, repr(error).encode()
        answers[str(status)] += 1
        if status == 200:
            found = json.loads(told)
            assert [] == found["quarantined"], found
            return int(found["accepted"])
        assert status in (0, 429, 503), told
        await asyncio.sleep(after + random.uniform(0, wait))
        wait = min(wait * 2, LONGEST_WAIT_S)


async def drain(port: int, args: argparse.Namespace) -> tuple[float, Counter[str], list[float], int]:
    """Seconds until all backlogs are taken, the answers, how long live posts took (s), events accepted."""
    answers: Counter[str] = Counter()
    turn = asyncio.Semaphore(args.at_once)
    done = asyncio.Event()
    backlogs = await asyncio.to_thread(lambda: [spool(n, args.pieces) for n in range(args.agents)])

    async def come_back(number: int) -> int:
        await asyncio.sleep(random.uniform(0, 5))
        link = Link(port)
        taken = 0
        for body in backlogs[number]:
            taken += await deliver(link, lambda body=body: body, answers, turn)  # type: ignore[misc]
        link.close()
        return taken

    async def live(number: int) -> tuple[list[float], int]:
        link, took, taken, own = Link(port), [], 0, asyncio.Semaphore(1)
        seq = 0
        while not done.is_set():
            begin = time.perf_counter()
            seq += 1
            taken += await deliver(link, lambda seq=seq: now(number, seq), answers, own)  # type: ignore[misc]
            took.append(time.perf_counter() - begin)
            await asyncio.sleep(random.uniform(0.5, 1.5))
        link.close()
        return took, taken

    lives = [asyncio.create_task(live(number)) for number in range(args.live)]
    begin = time.perf_counter()
    taken = sum(await asyncio.gather(*(come_back(number) for number in range(args.agents))))
    whole = time.perf_counter() - begin
    done.set()
    told = await asyncio.gather(*lives)
    waited = sorted(second for took, _ in told for second in took)
    return whole, answers, waited, taken + sum(accepted for _, accepted in told)


def measure(server: EmbeddedServer, args: argparse.Namespace) -> bool:
    """Print the table; whether nothing was lost."""
    migrate(server.url)
    with serving(server.url, workers=args.workers, ETT_LOG_LEVEL="error") as service:
        whole, answers, waited, taken = asyncio.run(drain(service.port, args))
    expected = args.agents * (3600 // WINDOW_S // args.pieces * args.pieces) * (RANKS + 1)
    with psycopg.connect(server.conninfo) as conn:
        row = conn.execute(
            "SELECT count(*), count(*) FILTER (WHERE node LIKE 'node-%') FROM events JOIN sources USING (source_id)"
        ).fetchone()
    assert row is not None
    stored, of_backlogs = row
    bodies = args.agents * args.pieces
    print(
        f"{args.agents:,} agents x 1 h of spool, {bodies:,} bodies, {expected:,} events; {args.workers} workers,"
    )
    print(f"{args.at_once} on their way at once; {args.live} agents report meanwhile")
    print(
        f"drained after     {whole:8.1f} s: {expected / whole:,.0f} events/s, {bodies / whole:,.0f} bodies/s"
    )
    print(f"live posts        {len(waited):8,}; median {waited[len(waited) // 2] * 1000:.0f} ms,"
          f" p95 {waited[int(len(waited) * 0.95)] * 1000:.0f} ms, worst {waited[-1] * 1000:.0f} ms")  # fmt: skip
    print(
        "answers           " + ", ".join(f"{count:,} x {status}" for status, count in sorted(answers.items()))
    )
    print(f"of the backlogs   {of_backlogs:8,} stored, {expected - of_backlogs:,} lost or doubled")
    return bool(of_backlogs == expected and stored == taken)


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--pieces", type=int, default=4, help="bodies of a backlog")
    parser.add_argument("--at-once", type=int, default=256, help="agents on their way at once")
    parser.add_argument(
        "--live", type=int, default=50, help="agents without a backlog, a heartbeat a second each"
    )
    parser.add_argument("--workers", type=int, default=2)
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
