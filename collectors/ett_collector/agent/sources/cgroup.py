"""The cgroups of the trainers: which they are, and whether the OOM killer took somebody out of one.

Version 2 counts in `memory.events` and wakes whoever polls it, version 1 in `memory.oom_control`. The count does not
name the victim; the kernel's log does, so these findings are used only where that cannot be read.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ett_collector.agent.sources.source import Fault, Missing, Read

if TYPE_CHECKING:
    from ett_collector.agent.sources.source import Finding, Surroundings

WAIT_MS = 250
DEEPEST = 4  # levels above a pod's: kubelet, kubepods, quality of service
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass
class Counter:
    """The open counts of one cgroup and of the one above it, which outlives it, and what they last said."""

    fd: int
    above: int
    killed: int | None = None
    killed_above: int | None = None
    gone: bool = False

    def grown(self) -> int:
        """How many were killed in it since the last call; of a cgroup that is gone, once, in the one above."""
        killed, above = _look(self.fd), _look(self.above)
        now, before = (above, self.killed_above) if killed is None else (killed, self.killed)
        grown = now - before if now is not None and before is not None and not self.gone else 0
        self.gone = killed is None
        self.killed, self.killed_above = killed, above
        return max(0, grown)

    def close(self) -> None:
        """Close both."""
        os.close(self.fd)
        if self.above >= 0:
            os.close(self.above)


def parse_cgroup(text: str) -> tuple[str, bool] | None:
    """(path, whether it is version 1) of the memory cgroup in `/proc/<pid>/cgroup`, None where there is none.

    A path from inside another cgroup namespace begins with `/..`, which is left out.
    """
    version_2 = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        while path.startswith("/.."):
            path = path[3:]
        if "memory" in controllers.split(","):
            return path or "/", True
        if (number, controllers) == ("0", ""):
            version_2 = path or "/"
    return None if version_2 is None else (version_2, False)


def parse_count(text: str) -> int | None:
    """`oom_kill` of `memory.events` or `memory.oom_control`."""
    found = _COUNT.search(text)
    return int(found[1]) if found is not None else None


def is_same(one: str, other: str) -> bool:
    """Whether two paths name the same cgroup, one perhaps as seen from a namespace; the root is nobody's own."""
    one, other = one.rstrip("/"), other.rstrip("/")
    return bool(one and other) and (one.endswith(other) or other.endswith(one))


class Cgroup:
    """Watches the cgroups of all live trainers."""

    def __init__(self, around: Surroundings, _cursor: dict[str, Any] | None) -> None:
        self._around = around
        self._counters: dict[str, Counter] = {}
        self._root = os.path.join(around.sysfs, "fs/cgroup")

    def open(self) -> None:
        """Raises `Missing` where no cgroups are mounted."""
        if not os.path.isdir(self._root) or not os.listdir(self._root):
            msg = f"{self._root}: no cgroups (mount /sys/fs/cgroup of the host, or set ETT_AGENT_SYSFS)"
            raise Missing(msg)

    def read(self) -> Read:
        """Wait for a kill for a moment, then look at all."""
        self._follow()
        poller = select.poll()
        for counter in self._counters.values():
            if not counter.gone:
                poller.register(counter.fd, select.POLLPRI)
        if any(event & select.POLLPRI for _, event in poller.poll(WAIT_MS)):
            time.sleep(0.01)  # a kill of several counts one after the other
        findings: list[Finding] = []
        for path, counter in self._counters.items():
            grown = counter.grown()
            if grown:
                text = f"oom_kill of cgroup {path} grew by {grown}"
                findings.append(Fault(time.time_ns(), "oom", text, cgroup=path, killed=True, local=True))
        return Read(findings)

    def close(self) -> None:
        """Close the counts."""
        for counter in self._counters.values():
            counter.close()
        self._counters = {}

    def _follow(self) -> None:
        """Watch the cgroups of who is there now, and no others."""
        pids = {one.pid for one in self._around.subjects if one.pid is not None}
        for pid in pids - self._around.cgroups.keys():
            with contextlib.suppress(OSError):
                with open(os.path.join(self._around.procfs, str(pid), "cgroup"), errors="replace") as file:
                    found = parse_cgroup(file.read())
                self._around.cgroups[pid] = found[0] if found is not None else ""
                if found is not None and found[0] not in self._counters:
                    self._watch(*found)
        for pid in self._around.cgroups.keys() - pids:
            del self._around.cgroups[pid]
        for path in self._counters.keys() - set(self._around.cgroups.values()):
            self._counters.pop(path).close()

    def _watch(self, path: str, version_1: bool) -> None:  # noqa: FBT001 - as `parse_cgroup` returns it
        folder, name = ("memory", "memory.oom_control") if version_1 else ("", "memory.events")
        for root in (
            self._root,
            os.path.join(self._root, "unified"),
        ):  # hybrid machines mount version 2 there
            place = find_folder(os.path.join(root, folder), path, name)
            if place is not None:
                above = _open(os.path.join(os.path.dirname(place), name))
                counter = Counter(_open(os.path.join(place, name)), above)
                counter.grown()
                self._counters[path] = counter
                return


def find_folder(root: str, path: str, name: str) -> str | None:
    """The folder of a cgroup below a mount; a path from another namespace is only the end of the whole one.

    `name` is a file that it holds. None where it is not there, as for the root cgroup, which counts nobody's own.
    """
    inner = path.strip("/")
    if not inner:
        return None
    for folder, below, _ in os.walk(root):
        place = os.path.join(folder, inner)
        if os.path.exists(os.path.join(place, name)):
            return place
        if folder.count("/") - root.count("/") >= DEEPEST:
            below.clear()
    return None


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return -1


def _look(fd: int) -> int | None:
    try:
        return parse_count(os.pread(fd, 4096, 0).decode()) if fd >= 0 else None
    except OSError:
        return None
