"""Whose a fault is: named only where it is certain, the node's otherwise, nobody's where it is of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ett_collector import process
from ett_collector.agent.config import AgentConfig
from ett_collector.agent.findings import Findings
from ett_collector.agent.pending import Pending
from ett_collector.agent.sources.running import UP, Found, Sources
from ett_collector.agent.sources.source import Fault, Read, Surroundings
from ett_collector.agent.trace import Trace
from ett_collector.agent.trainers import Trainers

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 10**9
PID, CGROUP = 4711, "/kubepods.slice/pod1/cri-1.scope"


class Here:
    """A node with one trainer of rank 2, that began at `began`, in a cgroup of its own."""

    def __init__(self, folder: Path) -> None:
        self.pending = Pending()
        self.trainers = Trainers(AgentConfig.from_args(["--spool-dir", str(folder)], {}), {}, self.pending)
        self.began = self.trainers.clock.now() - 100 * SECOND
        who = {"job": "j", "attempt": "a", "rank": 2, "kind": "trainer", "id": "0" * 32, "v": 2}
        where = {"pid": PID, "ticks": 1, "boot": process.boot_id(), "pidns": process.pid_namespace()}
        head = {**who, **where, "at": self.began, "began": self.began, "allocated": None, "launched_at": None}
        self.trace = self.trainers.traces["t"] = Trace.of("t", head, self.trainers.clock)
        self.sources = Sources(("kernel_log", "cgroup", "nvml"), Surroundings(cgroups={PID: CGROUP}), {})
        self.findings = Findings("n", self.sources, self.trainers, self.pending)

    def told(self, fault: Fault, *, source: str = "kernel_log", later_s: int = 0) -> list[dict[str, Any]]:
        """The events that a finding gives, up to some seconds later."""
        now = self.trainers.clock.now()
        self.findings.take(now)
        self.sources._queue.append(Found(source, Read([fault])))
        self.findings.take(now)
        self.findings.take(now + later_s * SECOND)
        events, self.pending.events = self.pending.events, []
        return events

    def fault(self, kind: str = "xid", **more: Any) -> Fault:
        """A fault of just now."""
        return Fault(self.trainers.clock.now() - self.trainers.clock.ahead_of_wall(), kind, "text", **more)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def owners(events: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [tuple(one.get(name) for name in ("job", "attempt", "rank")) for one in events]


OURS, NODES = ("j", "a", 2), (None, None, None)


def test_process_that_is_a_trainer(here: Here) -> None:
    (event,) = here.told(here.fault(code=79, gpu=3, pid=PID))
    assert {"kind": "xid", "code": 79, "gpu": 3, "text": "text"}.items() <= event.items()
    assert [OURS] == owners([event])


def test_process_that_is_none(here: Here) -> None:
    """The node's, if it can concern others; nobody's, if it cannot."""
    assert [NODES] == owners(here.told(here.fault(pid=99)))
    assert [NODES] == owners(here.told(here.fault()))
    assert [] == here.told(here.fault("other", pid=99, killed=True, local=True))


def test_pid_of_somebody_before(here: Here) -> None:
    """A fault from before a trainer began is none of its, though the pid is the same."""
    old = here.fault(pid=PID)
    assert [NODES] == owners(here.told(old._replace(at=old.at - 200 * SECOND)))


def test_kill_in_a_cgroup(here: Here) -> None:
    """By the kernel's log: of a child of ours, of the whole machine, of others."""
    child = here.fault("oom", pid=99, cgroup=CGROUP, killed=True, local=True)
    assert [NODES] == owners(here.told(child))
    assert [NODES] == owners(here.told(child._replace(cgroup="/other", local=False)))
    assert [] == here.told(child._replace(cgroup="/kubepods.slice/pod2/cri-2.scope"))


def test_count_of_a_cgroup_waits_for_a_death(here: Here) -> None:
    """It names nobody: whoever died of SIGKILL then, else the node after a while; not who ended otherwise."""
    count = here.fault("oom", cgroup=CGROUP, killed=True, local=True)
    assert [] == here.told(count, source="cgroup")
    assert [NODES] == owners(here.told(count._replace(at=count.at + 1), source="cgroup", later_s=4))[:1]
    here.trace.finished = {"at": here.trainers.clock.now(), "signal": 9}
    assert [OURS] == owners(
        here.told(here.fault("oom", cgroup=CGROUP, killed=True, local=True), source="cgroup")
    )
    other = Here(here.trainers.config.spool_dir)  # type: ignore[arg-type]
    other.trace.finished = {"at": other.trainers.clock.now(), "exit_code": 0, "clean": True}
    assert [NODES] == owners(
        other.told(other.fault("oom", cgroup=CGROUP, killed=True, local=True), source="cgroup", later_s=4)
    )


def test_better_source_goes_before(here: Here) -> None:
    """While the kernel's log is up, what others say of faults is said already."""
    assert [NODES] == owners(here.told(here.fault(), source="nvml"))
    here.sources._states["kernel_log"].state = UP
    assert [] == here.told(here.fault(), source="nvml")
    assert [] == here.told(here.fault("oom", cgroup=CGROUP, killed=True), source="cgroup", later_s=4)


def test_sources_know_who_is_here(here: Here) -> None:
    """Also for a moment after the end; the pid is the one by which the agent sees the process."""
    now = here.trainers.clock.now()
    here.findings.take(now)
    assert [("t", PID)] == [(one.name, one.pid) for one in here.sources.around.subjects]
    here.trace.finished = {"at": now, "exit_code": 0}
    here.findings.take(now + SECOND)
    assert 1 == len(here.sources.around.subjects)
    here.findings.take(now + 60 * SECOND)
    assert () == here.sources.around.subjects
