"""Which process here is one that told its pid in a namespace of its own (a container).

The start of a process, in ticks since the boot, is the same from everywhere, and so is the name of its pid namespace;
`NSpid` in its status tells its pid there.
"""

from __future__ import annotations

import os

from ett_collector import process


def find_pid(pidns: str, pid: int, ticks: int, procfs: str = "/proc") -> int | None:
    """The pid here of a process that is `pid` in `pidns`; None where it cannot be seen (no hostPID) or is gone."""
    try:
        names = os.listdir(procfs)
    except OSError:
        return None
    for name in names:
        if not name.isdigit():
            continue
        stat = process.read_stat(int(name), procfs)
        if stat is not None and stat.ticks == ticks and _is(os.path.join(procfs, name), pidns, pid):
            return int(name)
    return None


def innermost_pid(status: str) -> int | None:
    """The last number of `NSpid` in `/proc/<pid>/status`: the pid in the process's own namespace."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            last = line.split()[-1]
            return int(last) if last.isdigit() else None
    return None


def _is(place: str, pidns: str, pid: int) -> bool:
    try:
        if os.readlink(os.path.join(place, "ns/pid")) != pidns:
            return False
        with open(os.path.join(place, "status"), errors="replace") as file:
            return innermost_pid(file.read()) == pid
    except OSError:
        return False
