"""One node: a job whose trainers are killed and started again, an agent, and copies of all that was recorded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ett_collector.agent.attempts import Attempt
from ett_collector.agent.outbox import Outbox
from ett_collector.slots import COMMIT, SLOT, WORDS
from tests.chaos.books import ended
from tests.faults.server import wait_until
from tests.faults.service import environ

if TYPE_CHECKING:
    import random
    from pathlib import Path

RANKS = 2
LOOK_S = 0.01
# Windows of steps end at a phase, or where the agent happened to look. How the time of one is split that holds both old
# and new steps depends on that, as does where its waits for input are booked (at its start). So a phase lies before the
# first new step (`reached`: the furthest step before, or one more), and input is waited for in steps with a phase.
TRAINER = """
import os, pathlib, sys, time
import ett_collector as ett
rank, folder, reached = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
at = os.open(folder / f"at-{rank}", os.O_WRONLY | os.O_CREAT)
os.pwrite(at, b"%8d" % reached, 0)
ett.start(rank=rank, world_size=2, gpus_on_node=2)
saved, finish = folder / "saved", folder / "finish"
with ett.phase("checkpoint_load"):
    time.sleep(0.02)
    step = int(saved.read_text()) if saved.exists() else 0
if step:
    ett.checkpoint_loaded(step, samples=8 * step)
ett.step_begin(step + 1, samples=8 * step)
(folder / f"pid-{rank}").write_text(str(os.getpid()))
last = None
while last is None or step < last:
    if step in (reached - 1, reached) or step % 20 in (7, 8, 9):
        with ett.data_wait():
            time.sleep(0.002)
        with ett.phase("evaluation", attrs={"step": step}):
            time.sleep(0.002)
    time.sleep(0.005)
    step += 1
    os.pwrite(at, b"%8d" % step, 0)
    ett.step(step, samples=8 * step)
    if step % 20 == 0:
        with ett.phase("checkpoint_save_block", step=step):
            time.sleep(0.005)
        if rank == 0:
            ett.checkpoint_committed(step, samples=8 * step, mode="async")
            (folder / "saving").write_text(str(step))
            os.replace(folder / "saving", saved)
    if last is None and finish.exists():
        last = step // 20 * 20 + 40
ett.end()
"""


class Node:
    """`name` is the node's and the job's. `faults`: the folder whose files the shims of its processes obey."""

    def __init__(self, name: str, folder: Path, disk: str, clock: str, url: str) -> None:
        self.name = name
        self.folder = folder / name
        self.faults = self.folder / "faults"
        self.spool, self.state, self.kept = (self.folder / one for one in ("spool", "state", "kept"))
        for one in (self.faults, self.spool, self.kept):
            one.mkdir(parents=True)
        self.attempts = 0
        self._reached = 0  # the furthest step that any trainer was about to report
        self._disk, self._clock = disk, clock
        self._url = url
        self._launched: list[subprocess.Popen[bytes]] = []
        self._agent: subprocess.Popen[bytes] | None = None
        self._log = (self.folder / "agent.log").open("ab")
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _environ(self, *shims: str, **more: str) -> dict[str, str]:
        shimmed = {"LD_PRELOAD": ":".join(shims), "FAULTS": str(self.faults)}
        return environ(ETT_SPOOL_DIR=str(self.spool), ETT_NODE=self.name, **shimmed, **more)

    # the agent

    def start_agent(self) -> None:
        options = ("--url", self._url, "--state-dir", str(self.state), "--heartbeat", "0.3", "--window", "2")
        times = ("--poll", "0.05", "--timeout", "1", "--drain", "50", "--sources", "none")
        self._agent = subprocess.Popen(
            [sys.executable, "-m", "ett_collector.agent.main", *options, *times],
            env=self._environ(self._disk, self._clock), stderr=self._log,
        )  # fmt: skip

    def kill_agent(self) -> None:
        assert self._agent is not None
        self._agent.kill()
        self._agent.wait()

    def supervise(self) -> None:
        """Start the agent again where it could not begin (its disk was full), as systemd would."""
        if self._agent is not None and self._agent.poll() is not None:
            assert self._agent.wait() == 1
            self.start_agent()

    def stop_agent(self) -> None:
        """End it in good order, with all sent."""
        assert self._agent is not None
        self._agent.send_signal(signal.SIGTERM)
        assert self._agent.wait(60) == 0

    def tear_outbox(self, chance: random.Random) -> None:
        """What a kill in the middle of a write leaves: a part of a record. The agent must not run."""
        newest = max(self.state.glob("outbox.*.log"), default=None)
        if newest is not None:
            with newest.open("ab") as file:
                file.write(b"0123abcd " + b'{"k":"commit","events":[{"type":"ste'[: chance.randrange(1, 36)])

    def backlog(self) -> int:
        """Events that wait on the disk. The agent must not run."""
        outbox = Outbox(str(self.state))
        try:
            return outbox.backlog
        finally:
            outbox.close()

    # the job

    def launch(self) -> None:
        """The next attempt, up."""
        self.attempts += 1
        for rank in range(RANKS):
            (self.folder / f"pid-{rank}").unlink(missing_ok=True)
        said = ("--job", self.name, "--attempt", f"attempt-{self.attempts}")
        self._reached = max([self._reached, *(int(path.read_text()) for path in self.folder.glob("at-*"))])
        for rank in range(RANKS):
            trainer = (sys.executable, "-c", TRAINER, str(rank), str(self.folder), str(self._reached))
            command = [sys.executable, "-m", "ett_collector.run", *said, "--", *trainer]
            self._launched.append(
                subprocess.Popen(command, env=self._environ(self._clock, ETT_RANK=str(rank)))
            )
        wait_until(lambda: len(self._pids()) == RANKS)

    def _pids(self) -> list[int]:
        found = []
        for rank in range(RANKS):
            with suppress(OSError, ValueError):
                found.append(int((self.folder / f"pid-{rank}").read_text()))
        return found

    def kill_job(self, chance: random.Random) -> None:
        """SIGKILL to every rank; torn bytes at the end of one's spool."""
        pids = self._pids()
        with self._lock:  # an agent deletes what it has read of the dead at once
            self._keep_now()
        for pid in chance.sample(pids, len(pids)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait_for_launchers()
        self._tear_spool(pids[0], chance)

    def finish_job(self) -> None:
        """Let the attempt at hand complete."""
        (self.folder / "finish").touch()
        self._wait_for_launchers()

    def _wait_for_launchers(self) -> None:
        for one in self._launched:
            one.wait(60)
        self._launched.clear()

    def _tear_spool(self, pid: int, chance: random.Random) -> None:
        """A record without its end behind the last one of a dead trainer, and half a name behind that."""
        with self._lock:
            self._keep_now()
            for path in self.spool.glob(f"trainer-{pid}-*.spool"):
                with suppress(OSError), path.open("r+b") as file:
                    data = file.read()
                    kept = self.kept / path.name
                    kept.unlink()  # what is kept is what was recorded, not what became of it
                    kept.write_bytes(data)
                    file.seek(-(-len(data.rstrip(b"\0")) // SLOT) * SLOT)
                    torn = WORDS.pack(*(chance.randrange(2**40) for _ in range(7)), COMMIT)
                    if file.tell() + SLOT < len(data):
                        file.write(torn[: chance.randrange(1, SLOT - 8)])

    # what was recorded

    def _keep(self) -> None:
        while not self._done.wait(LOOK_S):
            with self._lock:
                self._keep_now()

    def _keep_now(self) -> None:
        for path in self.spool.glob("*.spool"):
            with suppress(OSError):
                if not (self.kept / path.name).exists():
                    os.link(path, self.kept / path.name)

    def close(self) -> None:
        self._done.set()
        self._keeper.join()
        for one in self._launched:
            one.terminate()  # passed on to the trainer
            one.wait()
        if self._agent is not None:
            self.kill_agent()
        self._log.close()

    def quiet(self, folder: Path, url: str) -> Node:
        """The same node anew, on which nothing was ever read and nobody lives; its agent keeps the same clock."""
        twin = Node(self.name, folder, "", "", url)
        for path in self.kept.glob("*.spool"):
            shutil.copyfile(path, twin.spool / path.name)
        before, after = Outbox(str(self.state)), Outbox(str(twin.state))
        told = {name: value for name, value in before.state["agent"].items() if name == "clock"}
        since = Attempt("long", "ago", ended=True, ends=[{"at": 0}])  # else the clock begins anew
        after.commit([], {"agent": told, "attempts": {"long\nago": since.to_json()}}, None)
        before.close()
        after.close()
        return twin

    def wait_until_told(self, conninfo: str, attempts: int) -> None:
        """Nothing is left in the spool, and the ends of so many attempts have arrived."""
        wait_until(lambda: not list(self.spool.glob("*.spool")))
        wait_until(lambda: ended(conninfo) == attempts)
