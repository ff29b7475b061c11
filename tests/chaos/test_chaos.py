"""Everything is killed, cut, filled up, torn and set at random: the books are those of a run in which nothing was.

What the trainers recorded is kept. Afterwards agents of the same nodes read it once more, quietly, and send it to a
service with a database of its own. Every heading of every attempt must be the same to the nanosecond, and of each
agent's life every event is in the database, once. Only where a window of steps ends may differ: that is when an agent
looked.

`make soak` goes on for longer; ETT_TEST_SEED=... repeats a choice of faults.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import httpx
from psycopg.conninfo import make_conninfo

from fleet_ett.postgres.migrate import migrate
from tests.chaos.books import beats, identities, quarantined, same_books, same_facts
from tests.chaos.network import TROUBLES, WHOLE, Network, network
from tests.chaos.node import Node
from tests.faults.server import Server, folder, servers, wait_until
from tests.faults.service import Service, hosted, service
from tests.faults.shim import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = float(os.environ.get("ETT_TEST_CHAOS_SECONDS", "0"))
ROUND_S = 40.0
# An older Python waits by the wall clock, of which the kernel knows another one than the shim tells.
WAITS_BY_MONOTONIC_TIME = sys.version_info >= (3, 11)
SEED = int(os.environ.get("ETT_TEST_SEED", "0")) or random.randrange(1, 2**31)
S = 1_000_000_000
JUMPS = (-3600, 3600, 0.2, -2, 20 * 3600)  # s


class Chaos:
    """The faults: each does its harm, and heals it; some last while others happen. `told`: what was done."""

    def __init__(
        self, node: Node, net: Network, served: Service, server: Server, chance: random.Random
    ) -> None:
        self.node, self.net, self.served, self.server = node, net, served, server
        self.served_faults = node.folder.parent / "served"
        self.chance = chance
        self.told: list[str] = []
        self.lasting: list[threading.Timer] = []

    def agent_killed(self) -> None:
        self.node.kill_agent()
        if self.chance.random() < 0.5:
            self.node.tear_outbox(self.chance)
        self._pause(0.3)
        self.node.start_agent()

    def service_killed(self) -> None:
        self.served.kill()
        self._pause(0.3)
        self.served.start()

    def postgres_killed(self) -> None:
        self.server.kill()
        self._pause(0.3)
        wait_until(self._is_postgres_up)

    def network_cut(self) -> None:
        self.net.change(self.chance.choice(TROUBLES))
        self._say(self.net.state)
        self._heal(1.5, lambda: self.net.change(WHOLE))

    def disk_of_the_agent_full(self) -> None:
        self._full(self.node.faults / "full")

    def disk_of_postgres_full(self) -> None:
        assert self.server.preload is not None
        self._full(self.server.preload.parent / "full")

    def clock_of_the_node_set(self) -> None:
        """And it stays so."""
        self._set(self.node.faults)

    def clock_of_the_service_set(self) -> None:
        """For a while: what it says now is what all stamps are measured against."""
        self._set(self.served_faults)
        self._heal(2.0, (self.served_faults / "ahead").unlink)

    def trainers_killed(self) -> None:
        self.node.kill_job(self.chance)
        self._pause(0.3)
        self.node.launch()

    def _is_postgres_up(self) -> bool:
        """Whether it is ready; started anew where it has ended, as it does where its log cannot grow."""
        if self.server.process is None or self.server.process.poll() is not None:
            wait_until(lambda: not self.server.processes())
            self.server.start(wait=False)
        return self.server.is_ready()

    def _set(self, faults: Path) -> None:
        ahead = self.chance.choice(JUMPS)
        self._say(f"{ahead} s ahead")
        (faults / "new").write_text(str(int(ahead * S)))
        (faults / "new").replace(faults / "ahead")

    def _full(self, file: Path) -> None:
        file.touch()
        self._heal(0.6, file.unlink)

    def _heal(self, longest_s: float, how: Callable[[], None]) -> None:
        """After a while, in which other things may break."""
        timer = threading.Timer(self.chance.random() * longest_s, how)
        timer.start()
        self.lasting.append(timer)

    def _pause(self, longest_s: float) -> None:
        time.sleep(self.chance.random() * longest_s)

    def _say(self, what: str) -> None:
        self.told.append(what)

    def rage(self, seconds: float) -> None:
        """Fault after fault, all kinds before any comes again, and each once at least."""
        faults: list[Callable[[], None]] = [
            self.agent_killed,
            self.service_killed,
            self.postgres_killed,
            self.network_cut,
            self.trainers_killed,
            self.disk_of_the_agent_full,
            self.disk_of_postgres_full,
        ]
        if WAITS_BY_MONOTONIC_TIME:
            faults += [self.clock_of_the_node_set, self.clock_of_the_service_set]
        until = time.monotonic() + seconds
        while True:
            self.chance.shuffle(faults)
            for fault in faults:
                self._pause(0.3)
                self._say(fault.__name__)
                fault()
                self.node.supervise()
            for timer in self.lasting:
                timer.join()
            self.lasting.clear()
            self.node.supervise()
            wait_until(self._is_postgres_up)
            if time.monotonic() >= until:
                return


def test_chaos_changes_nothing() -> None:
    """Every fault once; for SECONDS: runs of ROUND_S, each with a database of its own."""
    until, seed = time.monotonic() + SECONDS, SEED
    while True:
        run(seed, min(SECONDS, ROUND_S))
        if time.monotonic() >= until:
            return
        seed += 1


def run(seed: int, seconds: float) -> None:
    """Chaos of that choice for at least so long, and what is left of it."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        root = stack.enter_context(folder())
        (root / "shims").mkdir()
        disk, clock = (build(source, root / "shims") for source in ("disk.c", "clock.c"))
        make = stack.enter_context(servers())
        server = make("pg", "max_connections=30", preload=disk).create()
        migrate(server.url)
        server.do("CREATE DATABASE quiet TEMPLATE ett", database="postgres")
        (root / "served").mkdir()
        shimmed = {"LD_PRELOAD": str(clock), "FAULTS": str(root / "served")}
        served = stack.enter_context(service(ETT_DATABASE_URL=server.url, **shimmed))
        net = stack.enter_context(network(served.port, chance))
        node = Node("node-0", root, str(disk), str(clock), net.url)
        stack.callback(node.close)
        node.start_agent()
        wait_until(lambda: net.connections)
        node.launch()
        wait_until(lambda: server.ask("SELECT 1 FROM attempts"))
        chaos = Chaos(node, net, served, server, chance)
        try:
            chaos.rage(seconds)
            node.finish_job()
            node.kill_agent()
            node.start_agent()  # one that does not wait after failures
            wait_until(served.is_ready)
            node.wait_until_told(server.conninfo, node.attempts)
            node.stop_agent()
            assert 0 == node.backlog()
            check(server, node, root)
            served.kill()
        except BaseException:
            for timer in chaos.lasting:
                timer.join()
            print(f"ETT_TEST_SEED={seed}: {', '.join(chaos.told)}")
            with suppress(OSError):
                print((node.folder / "agent.log").read_text()[-4000:])
            raise


def check(server: Server, node: Node, root: Path) -> None:
    """Against the quiet run."""
    for numbers in identities(server.conninfo).values():
        assert list(range(len(numbers))) == numbers
    assert [] == quarantined(server.conninfo)
    assert not (node.state / "dead-letters.jsonl").exists()
    (root / "quiet").mkdir()
    quiet = make_conninfo(server.conninfo, dbname="quiet")
    with hosted(server.url.replace("/ett?", "/quiet?")) as address:
        twin = node.quiet(root / "quiet", address)
        try:
            twin.start_agent()
            twin.wait_until_told(quiet, node.attempts)
            twin.stop_agent()
            assert 0 == twin.backlog()
        finally:
            twin.close()
        # silence is a stall while somebody is seen alive: that is of the time, and nobody recorded it
        agent = {"node": node.name, "incarnation": "beats"}
        told = httpx.post(f"{address}/v1/events", json={"agent": agent, "events": beats(server.conninfo)})
        assert 200 == told.status_code, told.text
        same_facts(server.conninfo, quiet)
        same_books(server.conninfo, quiet)
