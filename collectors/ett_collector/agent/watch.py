"""Whether a recorded process lives, since when it does not, and how it ended.

By pidfd (it wakes the agent at once, and newer kernels tell the exit status), else by pid and start time in /proc;
a process of another pid namespace (a container) by its pid here, and where the agent cannot see it by the lock that
a recorder holds on its newest file.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector import process
from ett_collector.agent.hostpids import find_pid
from ett_collector.spool import segment_name

if TYPE_CHECKING:
    from ett_collector.agent.nodeclock import NodeClock

# PIDFD_GET_INFO (Linux 6.13) with PIDFD_INFO_EXIT (6.15): the wait status, also after the parent reaped it
_GET_INFO = 0xC040FF0B
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("=QQ11Ii")
_FREE_TWICE = 2  # a lock is free for a moment while a recorder goes on to its next file


class Death(NamedTuple):
    """When a process was seen gone (ns; None where it was gone before anybody looked) and its status."""

    at: int | None
    status: dict[str, Any]
    noticed: int


class Watch:
    """Watches the processes of heads; names are those of their spools."""

    def __init__(self, procfs: str, clock: NodeClock) -> None:
        self._procfs = procfs
        self._clock = clock
        self._boot = process.boot_id(procfs)
        self.namespace = process.pid_namespace(procfs)
        self._fds: dict[str, int] = {}
        self._seen: set[str] = set()
        self._free: dict[str, int] = {}
        self._pids: dict[str, int | None] = {}

    def pid_of(self, name: str, head: dict[str, Any]) -> int | None:
        """The pid of a process where the agent is; None where it cannot see the process, or never could."""
        if name not in self._pids:
            pid, ticks = int(head["pid"]), int(head["ticks"])
            if head["boot"] != self._boot or not ticks:
                found = None
            elif head["pidns"] == self.namespace:
                found = pid
            else:
                found = find_pid(head["pidns"], pid, ticks, self._procfs)
            self._pids[name] = found
        return self._pids[name]

    def fds(self) -> list[int]:
        """File descriptors that become readable when a process ends."""
        return list(self._fds.values())

    def check(self, name: str, head: dict[str, Any], folder: str, newest: int) -> Death | None:
        """The death of a process, None while it lives. `newest` is the number of its newest segment."""
        if head["boot"] != self._boot:
            return Death(None, {}, self._clock.now())
        pid = self.pid_of(name, head)
        return self._by_lock(name, folder, newest) if pid is None else self._by_pid(name, pid, head["ticks"])

    def forget(self, name: str) -> None:
        """Stop watching."""
        fd = self._fds.pop(name, None)
        if fd is not None:
            os.close(fd)
        self._seen.discard(name)
        self._free.pop(name, None)
        self._pids.pop(name, None)

    def _by_pid(self, name: str, pid: int, ticks: int) -> Death | None:
        first = name not in self._seen
        if first:
            self._open(name, pid)
        self._seen.add(name)
        stat = process.read_stat(pid, self._procfs)
        same = stat is not None and stat.ticks == ticks
        if first and not same:
            return Death(None, {}, self._clock.now())
        if name in self._fds:
            if not _is_readable(self._fds[name]):
                return None
            status = _exit_by_fd(self._fds[name])
        else:
            if stat is not None and same and stat.state not in "ZX":
                return None
            status = None
        if status is None and stat is not None and same and stat.status:
            status = _status(stat.status)  # still a zombie (0 may mean that we are not allowed to know)
        return Death(self._clock.now(), status or {}, self._clock.now())

    def _open(self, name: str, pid: int) -> None:
        try:
            self._fds[name] = os.pidfd_open(pid)
        except (AttributeError, OSError):
            return  # not Linux, no such process, or not allowed: /proc is polled

    def _by_lock(self, name: str, folder: str, newest: int) -> Death | None:
        try:
            with open(os.path.join(folder, segment_name(name, newest)), "rb") as file:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            self._free[name] = 0
            self._seen.add(name)
            return None  # held, or a file system that knows no locks: alive as far as anybody can tell
        self._free[name] = self._free.get(name, 0) + 1
        if self._free[name] < _FREE_TWICE:
            return None
        return Death(self._clock.now() if name in self._seen else None, {}, self._clock.now())


def _is_readable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _exit_by_fd(fd: int) -> dict[str, Any] | None:
    buffer = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(fd, _GET_INFO, buffer)
    except OSError:
        return None
    mask, *_, code = _INFO.unpack(buffer)
    return _status(code) if mask & _INFO_EXIT else None


def _status(wait_status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(wait_status):
        return {"signal": os.WTERMSIG(wait_status)}
    return {"exit_code": os.WEXITSTATUS(wait_status)}
