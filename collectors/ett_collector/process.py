"""What Linux says of a process: who it is for ever (pid and start), since when it runs, how it ended.

A pid alone is reused; pid and start ticks together name one process until the machine boots again.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_STATE, _START, _EXIT = 0, 19, 49  # fields of /proc/<pid>/stat, counted after the command's closing bracket


class ProcessStat(NamedTuple):
    """State letter, start (clock ticks since boot) and raw wait status (meaningful for a zombie only)."""

    state: str
    ticks: int
    status: int


def parse_stat(text: str) -> ProcessStat | None:
    """Parse `/proc/<pid>/stat`; None where it is not one. The command may hold spaces and brackets."""
    fields = text.rpartition(")")[2].split()
    try:
        return ProcessStat(fields[_STATE], int(fields[_START]), int(fields[_EXIT]))
    except (IndexError, ValueError):
        return None


def read_stat(pid: int, procfs: str = "/proc") -> ProcessStat | None:
    """The stat of a process; None where there is no such process (or no /proc)."""
    try:
        return parse_stat(_read(os.path.join(procfs, str(pid), "stat")))
    except OSError:
        return None


def started_at(stat: ProcessStat, now: int) -> int | None:
    """When a process started, by a clock that says `now` (ns); None where the kernel does not tell."""
    try:
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - stat.ticks * (1_000_000_000 // _TICKS)
    except (AttributeError, OSError):
        return None
    return now - age if age >= 0 else None


def boot_id(procfs: str = "/proc") -> str:
    """The identity of this boot of the machine, empty where unknown."""
    try:
        return _read(os.path.join(procfs, "sys/kernel/random/boot_id")).strip()
    except OSError:
        return ""


def pid_namespace(procfs: str = "/proc") -> str:
    """The pid namespace of this process: in another one (a container) the same pid is somebody else."""
    try:
        return os.readlink(os.path.join(procfs, "self/ns/pid"))
    except OSError:
        return ""


def _read(path: str) -> str:
    with open(path, errors="replace") as file:  # pathlib would double the import time of the recorder
        return file.read()
