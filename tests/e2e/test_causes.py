"""From a real death to its cause in the books: what the agent saw beside the exit status decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.core.ledger import attribute
from tests.collectors.conftest import Bench, bench, receiver, until
from tests.collectors.sources.test_cgroup import GROW, TRAINER, group, watched

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bench", "group", "receiver"]


def cause(bench: Bench) -> tuple[str, str, int | None]:
    """(cause, kind, rank) of the only incident."""
    (incident,) = attribute(bench.receiver.events.values()).summary.incidents
    return incident.cause, incident.kind, incident.rank


def test_out_of_memory(bench: Bench, group: Path) -> None:
    """SIGKILL, and the kernel says why."""
    trainer = bench.trainer(TRAINER.format(procs=str(group / "cgroup.procs"), then=GROW))
    agent = watched(bench, group)
    assert trainer.stdin
    trainer.stdin.write("\n")
    trainer.stdin.flush()
    until(lambda: bench.receiver.of("attempt_end") and bench.receiver.of("fault"))
    bench.stop(agent)
    assert ("host_oom", "user", 5) == cause(bench)


def test_killed_by_hand(bench: Bench) -> None:
    """The same signal, and nothing says why: that is not guessed."""
    trainer = bench.trainer("import ett_collector as ett\nett.start('j', attempt='a')\nett.step(0); wait()")
    agent = bench.agent()
    until(lambda: [e for e in bench.receiver.of("heartbeat") if e.body["jobs"]])
    trainer.kill()
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)
    assert ("undiagnosed", "unknown", 0) == cause(bench)
