"""Many agents in one process: requests as an agent sends them, and its patience when it is told to come back."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ett_collector.agent.ship import FIRST_WAIT_S, LONGEST_WAIT_S
from ett_collector.coding import CODING

TIMEOUT_S = 30.0  # of one request, as an agent's


@dataclass(slots=True)
class Heard:
    """What the service said: statuses (0 where no answer came), refusals that did not say when to come back."""

    statuses: Counter[int] = field(default_factory=Counter)
    unsaid: int = 0
    accepted: int = 0
    duplicates: int = 0
    quarantined: int = 0

    def __iadd__(self, other: Heard) -> Heard:
        self.statuses += other.statuses
        self.unsaid += other.unsaid
        self.accepted += other.accepted
        self.duplicates += other.duplicates
        self.quarantined += other.quarantined
        return self


class Crowd:
    """Agents that share a process and a bound of connections. `port`: the service's, on loopback."""

    def __init__(self, port: int, *, links: int) -> None:
        self.heard = Heard()
        self._port = port
        self._links = asyncio.Semaphore(links)

    async def deliver(self, body: bytes) -> float:
        """Post a body of an agent until it is taken, waiting between tries as an agent does; seconds in all."""
        begin, failures = time.perf_counter(), 0
        while True:
            status, asked, said = await self._post(body)
            self.heard.statuses[status] += 1
            if status == 200:
                self.heard.accepted += said["accepted"]
                self.heard.duplicates += said["duplicates"]
                self.heard.quarantined += len(said["quarantined"])
                return time.perf_counter() - begin
            assert status in (0, 429, 503), (status, said)
            self.heard.unsaid += status != 0 and not asked
            failures += 1
            longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(failures - 1, 10))
            await asyncio.sleep(random.uniform(longest / 2, longest) + asked)

    async def get(self, path: str) -> tuple[int, float]:
        """The status of a page, and its seconds."""
        begin = time.perf_counter()
        status, _, _ = await self._ask(f"GET {path} HTTP/1.1\r\n".encode(), b"")
        return status, time.perf_counter() - begin

    async def _post(self, body: bytes) -> tuple[int, float, Any]:
        """Status (0: no answer), seconds asked for, and the parsed answer."""
        head = f"POST /v1/events HTTP/1.1\r\nContent-Encoding: {CODING}\r\nContent-Length: {len(body)}\r\n"
        async with self._links:
            return await self._ask(head.encode() + b"Content-Type: application/json\r\n", body)

    async def _ask(self, head: bytes, body: bytes) -> tuple[int, float, Any]:
        try:
            raw = await asyncio.wait_for(self._exchange(head, body), TIMEOUT_S)
            first, _, rest = raw.partition(b"\r\n")
            fields, _, content = rest.partition(b"\r\n\r\n")
            status = int(first.split(b" ")[1])
            said = dict(line.lower().split(b": ", 1) for line in fields.split(b"\r\n"))
            content = content[: int(said[b"content-length"])]
            is_json = said[b"content-type"].endswith(b"json")
            return status, float(said.get(b"retry-after", 0)), json.loads(content) if is_json else content
        except (OSError, asyncio.TimeoutError, IndexError, KeyError, ValueError):
            return 0, 0.0, None

    async def _exchange(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(head + b"Host: 127.0.0.1\r\nConnection: close\r\n\r\n" + body)
            return await reader.read()
        finally:
            writer.close()
