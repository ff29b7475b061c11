"""The demo's launcher: two ranks on two nodes, both started again from the newest checkpoint when one fails.

It also does the harm: SIGKILL to a rank between two checkpoints, and a read that never returns. Everything else
that happens is the training's own doing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RANKS = 2
POLL_S = 0.02
GO_AWAY_S = 5.0  # a rank gets so long to notice that the other is dead
VICTIM = 1


@dataclass(frozen=True)
class Plan:
    """What the run does: `kill_after` and `hang_before` are steps, `timeout_s` is the collective's."""

    steps: int = 520
    kill_after: int = 151
    hang_before: int = 295
    timeout_s: float = 4.0


@dataclass
class Harm:
    """What was done, and when (ns)."""

    killed_at: int = 0
    killed_after: int = 0
    hung_since: int = 0
    let_go_at: int = 0


@dataclass
class Launcher:
    """Runs the job to its end. `spools` are the spool folders of the nodes, one rank on each."""

    job: str
    folder: Path
    spools: list[Path]
    plan: Plan
    say: Callable[[str], None]
    before_kill: Callable[[str], None]
    harm: Harm = field(default_factory=Harm)
    attempts: int = 0

    def run(self) -> int:
        """Start attempts until one completes; the number of attempts. Raises `RuntimeError` when none does."""
        while self.attempts < 5:  # three are planned
            attempt = f"launch-{self.attempts}"
            self.attempts += 1
            with socket.socket() as kept:  # as long as it is bound nobody else is given the port
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind(("127.0.0.1", 0))
                ranks = self._start(attempt, kept.getsockname()[1])
                try:
                    codes = self._watch(attempt, ranks)
                finally:
                    for rank in ranks:
                        if rank.poll() is None:
                            rank.kill()
                        rank.wait()
            if codes == [0] * RANKS:
                return self.attempts
            self.say(
                f"attempt {attempt} failed (exit codes {codes}); starting again from the newest checkpoint"
            )
        msg = "the training did not complete"
        raise RuntimeError(msg)

    def log(self, rank: int) -> list[dict[str, object]]:
        """What a rank's own log says so far: attempt, step, end (ns), loss."""
        path = self.folder / f"steps.rank{rank}.jsonl"
        if not path.exists():
            return []
        whole, _, _ = path.read_text().rpartition("\n")  # a line may be seen while it is being written
        return [json.loads(line) for line in whole.splitlines()]

    def _start(self, attempt: str, port: int) -> list[subprocess.Popen[bytes]]:
        self.say(f"attempt {attempt}: {RANKS} ranks start")
        silent = self.folder / f"side-table.rank{VICTIM}.step{self.plan.hang_before}"
        silent.unlink(missing_ok=True)
        if attempt == "launch-1":
            os.mkfifo(silent)  # nobody ever writes to it: reading hangs for real
        return [self._rank(attempt, rank, port) for rank in range(RANKS)]

    def _rank(self, attempt: str, rank: int, port: int) -> subprocess.Popen[bytes]:
        (self.folder / f"trainer.rank{rank}.pid").unlink(missing_ok=True)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
        environ |= {
            "ETT_SPOOL_DIR": str(self.spools[rank]),
            "ETT_GPUS_ON_NODE": "1",  # each rank stands for a node with one accelerator
            "RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "LOCAL_WORLD_SIZE": "1",
            "DEMO_FOLDER": str(self.folder),
            "DEMO_STEPS": str(self.plan.steps),
            "DEMO_PORT": str(port),
            "DEMO_TIMEOUT_S": str(self.plan.timeout_s),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        kept = ["--hardware-kept"] if attempt != "launch-0" else []
        run = [
            sys.executable,
            "-m",
            "ett_collector.run",
            "--job",
            self.job,
            "--attempt",
            attempt,
            *kept,
            "--",
        ]
        return subprocess.Popen([*run, sys.executable, "-m", "fleet_ett.demo.trainer"], env=environ)

    def _watch(self, attempt: str, ranks: list[subprocess.Popen[bytes]]) -> list[int | None]:
        """Wait for the end of an attempt, doing harm on the way; the ranks' exit codes."""
        failed_at = None
        told = -40
        while True:
            codes = [rank.poll() for rank in ranks]
            if None not in codes:
                return codes
            step = self._last_step(attempt)
            if step and step >= told + 40:
                told = step - step % 40
                self.say(f"step {step}: loss {self._loss():.3f}")
            if attempt == "launch-0" and not self.harm.killed_at and step >= self.plan.kill_after:
                self._kill(attempt)
            if attempt == "launch-1" and not self.harm.hung_since and step >= self.plan.hang_before - 1:
                self.harm.hung_since = time.time_ns()
                self.say(f"rank {VICTIM} hangs: it reads from storage that does not answer")
            if any(codes) and failed_at is None:
                failed_at = time.monotonic()
                self.harm.let_go_at = time.time_ns()
            # a rank that hangs does not notice that the other one has given up
            if failed_at is not None and time.monotonic() > failed_at + (
                GO_AWAY_S if not self.harm.hung_since else 0
            ):
                self._signal_trainers(signal.SIGKILL)
            time.sleep(POLL_S)

    def _kill(self, attempt: str) -> None:
        self.before_kill(attempt)
        self.harm.killed_at = time.time_ns()
        self._signal(VICTIM, signal.SIGKILL)
        self.harm.killed_after = self._last_step(attempt)
        self.say(f"rank {VICTIM} was killed with SIGKILL after step {self.harm.killed_after}")

    def _signal_trainers(self, number: signal.Signals) -> None:
        for rank in range(RANKS):
            self._signal(rank, number)

    def _signal(self, rank: int, number: signal.Signals) -> None:
        """Signal a trainer itself, not the `ett-run` above it, which then tells how it ended."""
        try:
            os.kill(int((self.folder / f"trainer.rank{rank}.pid").read_text()), number)
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return

    def _last_step(self, attempt: str) -> int:
        return max(
            (int(str(one["step"])) for one in self.log(VICTIM) if one["attempt"] == attempt), default=0
        )

    def _loss(self) -> float:
        return float(str(self.log(VICTIM)[-1]["loss"]))
