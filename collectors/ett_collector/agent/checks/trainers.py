"""Who records here, and how much of it the agent can see of each."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from ett_collector import process
from ett_collector.agent.checks.line import FAIL, OK, WARN, Line
from ett_collector.agent.nodeclock import NodeClock
from ett_collector.agent.tail import Position, list_spools, read_spool, version_of
from ett_collector.agent.watch import Watch
from ett_collector.spool import HEAD_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ett_collector.agent.config import AgentConfig

SHOWN = 20
TELLS_STATUS = (6, 15)  # PIDFD_INFO_EXIT


def check_trainers(config: AgentConfig) -> Iterator[Line]:
    """The recorded processes that live, by job and attempt."""
    watch = Watch(config.procfs, NodeClock.of(process.boot_id(config.procfs), {}))
    ranks: dict[tuple[str, str], list[int]] = {}
    unseen = foreign = 0
    for name, numbers in list_spools(config.spool_dir).items():
        head = _head(config.spool_dir, name, numbers)
        if head is None:
            foreign += version_of(config.spool_dir, name, numbers[0]) not in (None, HEAD_VERSION)
            continue
        if head["kind"] == "launcher" or not _lives(watch, name, head, config.spool_dir, numbers[-1]):
            continue
        ranks.setdefault((head["job"], head["attempt"]), []).append(head["rank"])
        unseen += watch.pid_of(name, head) is None
    if not ranks:
        yield Line("trainers", OK, "none records here now")
    for (job, attempt), found in sorted(ranks.items())[:SHOWN]:
        shown = ", ".join(map(str, sorted(found)[:SHOWN])) + (", ..." if len(found) > SHOWN else "")
        yield Line("trainers", OK, f"{job}, attempt {attempt}: {len(found)} live, ranks {shown}")
    if foreign:
        do = "another version of ett_collector wrote them; give trainers and agent the same one"
        yield Line("trainers", WARN, f"{foreign} spools cannot be read", do)
    yield _sight(config, watch, unseen)


def _sight(config: AgentConfig, watch: Watch, unseen: int) -> Line:
    if not process.boot_id(config.procfs):
        return Line(
            "processes", FAIL, f"{config.procfs} shows no processes", "mount procfs, or set ETT_AGENT_PROCFS"
        )
    if unseen:
        said = f"{unseen} trainers live in a pid namespace that is not seen from here"
        do = "their deaths are noticed, but not by which signal: hostPID: true for the agent"
        return Line("processes", WARN, said, do)
    if _kernel() < TELLS_STATUS:
        said = f"Linux {platform.release()} tells the exit status of a trainer to its parent alone"
        return Line(
            "processes", WARN, said, "launch by ett-run, which passes it on; later than 6.15 it is not needed"
        )
    return Line(
        "processes", OK, f"seen, with their exit status, in {watch.namespace or 'an unknown namespace'}"
    )


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())


def _head(folder: str, name: str, numbers: list[int]) -> dict[str, Any] | None:
    if version_of(folder, name, numbers[0]) != HEAD_VERSION:
        return None
    found = read_spool(folder, name, numbers, Position()).records
    head = found[0] if found else None
    return head if isinstance(head, dict) and head.get("t") == "head" else None


def _lives(watch: Watch, name: str, head: dict[str, Any], folder: str, newest: int) -> bool:
    looks = [watch.check(name, head, folder, newest) for _ in range(2)]  # a lock has to be free twice
    return looks[-1] is None
