"""The memory of a service under overload, and whether others are answered: `python -m tests.bench.overload`.

One `fleet-ett serve` process; 64 clients post as fast as they can bodies of the largest size, small ones and bombs,
while others trickle theirs. Prints the process's memory over the time, what the clients were told, and how long
readers and probes waited. Exits with 1 where memory went beyond its bound, an event was lost, or a refusal did not
say when to come back.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import itertools
import json
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.server import EmbeddedServer
from tests.bench.serving import children_of, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    Post = tuple[bytes, dict[str, str], int]  # body, headers, events that are accepted the first time

MIB = 1024 * 1024
MOST_MIB = 1024
S = 1_000_000_000
T0 = time.time_ns() // S * S - 7200 * S
PAGES = ("/healthz", "/readyz", "/metrics", "/v1/fleet/ett", "/v1/jobs")
JSON, GZIP = (
    {"Content-Type": "application/json"},
    {"Content-Type": "application/json", "Content-Encoding": "gzip"},
)
MSGPACK = {"Content-Type": "application/msgpack"}


def tail(size: int, padding: int) -> bytes:
    """A body without its beginning: phases with attributes of `padding` characters."""
    told = [
        {
            "type": "phase", "job": "j", "attempt": "a", "rank": seq % 64, "phase": "model_build", "seq": seq,
            "start": T0 + seq * S // 100, "end": T0 + seq * S // 100 + S, "attrs": {"note": "x" * padding},
        }
        for seq in range(size)
    ]  # fmt: skip
    return b', "events": ' + json.dumps(told).encode() + b"}"


# Made once, before the clients come into being: they are to send, not to prepare.
LARGE, SMALL = tail(18_000, 700), tail(20, 0)
BOMBS: list[Post] = [
    (gzip.compress(b'{"events": [' + b" " * 200 * MIB, 9), GZIP, 0),
    (b'{"a":' + b"[" * (15 * MIB), JSON, 0),
    (b'{"events":[' + b"{}," * (5 * MIB) + b"{}]}", JSON, 0),
    (b"\x81\xa6events\xdd\x00\xf0\x00\x00" + b"\x80" * (15 * MIB), MSGPACK, 0),
    (b"\x81\xa1a\xdd\x00\xf0\x00\x00" + b"\x80" * (15 * MIB), MSGPACK, 0),
]


def kinds(number: int) -> Iterator[Post]:
    """What one client sends, for ever: each sound body is of a node of its own."""
    dice = random.Random(number)
    for at in itertools.count():
        drawn = dice.random()
        if drawn < 0.1:
            yield dice.choice(BOMBS)
        else:
            rest, size = (LARGE, 18_000) if drawn < 0.5 else (SMALL, 20)
            node = f"n-{number}-{at}"
            agent = json.dumps({"node": node, "incarnation": node, "version": "1"}).encode()
            yield b'{"agent": ' + agent + rest, JSON, size


def client(number: int, port: int, until: float, told: Any) -> None:
    """Post for as long as it lasts; what was answered goes to `told`."""
    answers: Counter[str] = Counter()
    taken = 0
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for body, headers, size in kinds(number):
        if time.time() > until:
            break
        try:
            link.request("POST", "/v1/events", body, headers)
            answer = link.getresponse()
            said = answer.read()
        except OSError as error:
            answers[type(error).__name__] += 1
            link.close()
            continue
        answers[str(answer.status)] += 1
        if answer.status == 200:
            taken += json.loads(said)["accepted"]
            assert json.loads(said)["accepted"] in (0, size)
        elif answer.status in (429, 503) and not answer.headers.get("Retry-After"):
            answers["no Retry-After"] += 1
    told.put((answers, taken))


def trickle(port: int, until: float) -> None:
    """Hundreds of connections that say a byte now and then, in the head or in the body."""
    head = b"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    links: list[socket.socket] = []
    while time.time() < until:
        while len(links) < 400:
            link = socket.create_connection(("127.0.0.1", port), timeout=10)
            link.sendall(head if len(links) % 2 else head + b"Content-Length: 16000000\r\n\r\n{")
            links.append(link)
        for link in list(links):
            try:
                link.sendall(b"x")
            except OSError:
                link.close()
                links.remove(link)
        time.sleep(0.5)
    for link in links:
        link.close()


def watch(port: int, until: float) -> dict[str, list[float]]:
    """How long pages took, in ms; a failure counts as a minute."""
    took: dict[str, list[float]] = {page: [] for page in PAGES}
    while time.time() < until:
        for page in PAGES:
            begin = time.perf_counter()
            try:
                link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                link.request("GET", page)
                status = link.getresponse().status
                link.close()
            except OSError:
                status = 0
            took[page].append((time.perf_counter() - begin) * 1000 if status == 200 else 60_000)
        time.sleep(0.1)
    return took


def memory(pid: int) -> float:
    """Resident MiB of the process that answers, a child of that one."""
    pages = [int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in children_of(pid)]
    return max(pages) * os.sysconf("SC_PAGE_SIZE") / MIB


def measure(server: EmbeddedServer, args: argparse.Namespace) -> bool:
    """Print the table; whether all is well."""
    migrate(server.url)
    with serving(server.url, attribution=0, ETT_LOG_LEVEL="error") as service:
        port, at_rest = service.port, memory(service.pid)
        until = time.time() + args.seconds
        told: Any = multiprocessing.Queue()
        assert len(LARGE) < 16 * MIB - 1000
        senders = [
            multiprocessing.Process(target=client, args=(number, port, until, told), daemon=True)
            for number in range(args.clients)
        ]
        for sender in senders:
            sender.start()
        threading.Thread(target=trickle, args=(port, until), daemon=True).start()
        with ThreadPoolExecutor(1) as pool:
            waited = pool.submit(watch, port, until)
            seen = []
            while time.time() < until:
                seen.append(memory(service.pid))
                time.sleep(0.1)
            took = waited.result()
        answers: Counter[str] = Counter()
        taken = 0
        for _ in senders:
            got, accepted = told.get(timeout=120)
            answers += got
            taken += accepted
        for sender in senders:
            sender.join()
        time.sleep(1)
        after = memory(service.pid)
    with psycopg.connect(server.conninfo) as conn:
        row = conn.execute("SELECT count(*) FROM events").fetchone()
    stored = row[0] if row else 0
    half = len(seen) // 2
    print(f"{args.clients} clients and 400 that trickle, {args.seconds} s, one process")
    print(f"memory: {at_rest:.0f} MiB at rest; {max(seen[:half]):.0f} at most in the first half,")
    print(f"        {max(seen[half:]):.0f} in the second, {after:.0f} a second after; bound {MOST_MIB} MiB")
    print("answers: " + ", ".join(f"{count} x {status}" for status, count in sorted(answers.items())))
    print(f"events acknowledged {taken:,}, stored {stored:,}")
    for page, ms in took.items():
        ms.sort()
        print(f"{page:16} {len(ms):5} asked; median {statistics.median(ms):6.0f} ms,"
              f" p95 {ms[int(len(ms) * 0.95)]:6.0f} ms, worst {ms[-1]:6.0f} ms")  # fmt: skip
    return max(seen) < MOST_MIB and stored >= taken and not answers["no Retry-After"]


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=60)
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
