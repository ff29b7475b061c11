"""The kernel's log: XIDs and SXIDs of NVIDIA's drivers, PCIe and memory errors, and whom the OOM killer took.

Reads `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg): one record a read, none twice (the sequence number is kept).
"""

from __future__ import annotations

import errno
import os
import re
import select
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector import process
from ett_collector.agent.sources.source import Fault, Missing, Read

if TYPE_CHECKING:
    from collections.abc import Callable

    from ett_collector.agent.sources.source import Finding, Surroundings

WAIT_MS = 1000
BACKLOG_NS = 900_000_000_000  # how far back the first look goes
SAME_NS = 5_000_000_000  # one fault says so in many lines (coalescing of the Delta study)
RECORD_BYTES = 8192
READS = 2000
TEXT = 500
INIT_NAMESPACE = "pid:[4026531836]"  # the pids of the log are those of this namespace (PROC_PID_INIT_INO)

_XID = re.compile(r"^NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)(?:, pid=(\d+))?")
_SXID = re.compile(r"^nvidia-nvswitch\d+: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+),")
_DEVICE_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


class Record(NamedTuple):
    """One record of `/dev/kmsg`: sequence number, microseconds since the boot, text."""

    seq: int
    at_us: int
    text: str


class Victim(NamedTuple):
    """Whom the OOM killer is about to take, and from which cgroup; `memcg`: for that cgroup's own limit."""

    pid: int
    cgroup: str
    memcg: bool


def parse_record(line: str) -> Record | None:
    """Parse `priority,sequence,microseconds,flags[,...];text`; None for anything else (its properties)."""
    prefix, found, text = line.partition(";")
    fields = prefix.split(",")
    if not found or len(fields) < 4 or not (fields[1].isdigit() and fields[2].isdigit()):
        return None
    return Record(int(fields[1]), int(fields[2]), text)


def parse_text(text: str, at: int) -> Fault | Victim | None:
    """What a line of the log says (`at` wall ns). PCI addresses stay in the text; `gpu` is not known here."""
    for pattern, make in _KINDS:
        found = pattern.match(text)
        if found is not None:
            return make(found, at)
    return None


def _xid(found: re.Match[str], at: int) -> Fault:
    pid = int(found[3]) if found[3] else None
    return Fault(at, "xid", found.string[:TEXT], int(found[2]), pid=pid)


def _sxid(found: re.Match[str], at: int) -> Fault:
    return Fault(at, "other", found.string[:TEXT], int(found[2]))


def _victim(found: re.Match[str], _at: int) -> Victim:
    return Victim(int(found[3]), found[2], found[1] == "CONSTRAINT_MEMCG")


def _kill(found: re.Match[str], at: int) -> Fault:
    memcg = found[1] == "Memory cgroup out of memory"
    return Fault(at, "oom", found.string[:TEXT], pid=int(found[2]), killed=True, local=memcg)


def _segfault(found: re.Match[str], at: int) -> Fault:
    return Fault(at, "other", found.string[:TEXT], pid=int(found[1]), killed=True, local=True)


def _other(found: re.Match[str], at: int) -> Fault:
    return Fault(at, "other", found.string[:TEXT])


_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int], Fault | Victim]], ...] = (
    (_XID, _xid),
    (_SXID, _sxid),
    (re.compile(r"^oom-kill:constraint=(\w+),.*task_memcg=([^,]+),task=.*,pid=(\d+),uid=\d+$"), _victim),
    # before Linux 4.19 the line that says why stands before the one that says whom
    (re.compile(r"^(?:(Memory cgroup out of memory|Out of memory[^:]*): )?Killed process (\d+)\b"), _kill),
    (re.compile(r"^\S+\[(\d+)\]: segfault at .* in libnccl\.so"), _segfault),
    # what the service reads in their text
    (re.compile(r"^\S+ [0-9a-f:.]+: (?:AER: )?PCIe Bus Error: severity=Uncorrected"), _other),
    (re.compile(r"^EDAC .*\bUE\b"), _other),
    (re.compile(r"^(?:mce: )?\[Hardware Error\]: .*\buncorrected\b", re.IGNORECASE), _other),
)


def parse_minor(information: str) -> int | None:
    """The number of a GPU in `/proc/driver/nvidia/gpus/<address>/information`."""
    found = _DEVICE_MINOR.search(information)
    return int(found[1]) if found is not None else None


class KernelLog:
    """Reads the log as it grows."""

    def __init__(self, around: Surroundings, cursor: dict[str, Any] | None) -> None:
        self._around = around
        self._boot = process.boot_id(around.procfs)
        known = cursor is not None and cursor.get("boot") == self._boot
        self._seq = int(cursor["seq"]) if cursor is not None and known else -1
        self._oldest_us = 0 if known else (time.monotonic_ns() - BACKLOG_NS) // 1000
        self._fd = -1
        self._live = False  # all that was there before us is read: what comes now is of now
        self._rest = b""
        self._victims: dict[int, Victim] = {}
        self._seen: dict[tuple[object, ...], int] = {}
        self._gpus: dict[str, int] = {}
        self._pids_are_ours = process.pid_namespace(around.procfs) == INIT_NAMESPACE

    def open(self) -> None:
        """Raises `Missing` where the log is not there or not for this user."""
        try:
            self._fd = os.open(self._around.kmsg, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            text = f"{self._around.kmsg}: {error.strerror}"
            msg = f"{text} (it needs root or CAP_SYSLOG, and in a container the device)"
            raise Missing(msg) from error
        self._gpus = _gpu_numbers(self._around.procfs)  # not when an XID is there: the driver may hang then

    def read(self) -> Read:
        """Wait for a record at most a second; then all that are there."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        poller.poll(WAIT_MS)
        findings: list[Finding] = []
        before = self._seq
        for _ in range(READS):
            data = self._next()
            if not data:
                self._live = True
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(line.decode(errors="replace"), findings)
        return Read(findings, {"boot": self._boot, "seq": self._seq} if self._seq != before else None)

    def close(self) -> None:
        """Close the device."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next(self) -> bytes:
        try:
            return os.read(self._fd, RECORD_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten before we came: the next read goes on behind it
                return self._next()
            raise

    def _take(self, line: str, findings: list[Finding]) -> None:
        record = parse_record(line)
        if record is None or record.seq <= self._seq:
            return
        self._seq = record.seq
        if record.at_us < self._oldest_us:
            return
        now = time.time_ns()
        at = now if self._live else now - time.monotonic_ns() + record.at_us * 1000
        found = parse_text(record.text, at)
        if isinstance(found, Victim):
            self._victims[found.pid] = found
        elif found is not None:
            fault = self._placed(found)
            if not self._is_repeat(fault):
                findings.append(fault)

    def _placed(self, fault: Fault) -> Fault:
        """With what else is known: the cgroup of a victim, the number of a GPU; foreign pids taken out."""
        victim = self._victims.pop(fault.pid, None) if fault.pid is not None and fault.kind == "oom" else None
        if victim is not None:
            fault = fault._replace(cgroup=victim.cgroup, local=victim.memcg)
        address = _XID.match(fault.text)
        gpu = self._gpus.get(address[1].lower().partition(".")[0]) if address is not None else None
        return fault._replace(gpu=gpu, pid=fault.pid if self._pids_are_ours else None)

    def _is_repeat(self, fault: Fault) -> bool:
        device = _XID.match(fault.text) or _SXID.match(fault.text)
        what = device[1] if device is not None else fault.pid or fault.text
        key = (fault.kind, fault.code, what)
        last, self._seen[key] = self._seen.get(key), fault.at
        if len(self._seen) > READS:
            self._seen = {key: fault.at}
        return last is not None and fault.at - last < SAME_NS


def _gpu_numbers(procfs: str) -> dict[str, int]:
    """PCI address without function -> number of the GPU."""
    folder = os.path.join(procfs, "driver/nvidia/gpus")
    numbers: dict[str, int] = {}
    try:
        for name in os.listdir(folder):
            with open(os.path.join(folder, name, "information"), errors="replace") as file:
                minor = parse_minor(file.read())
            if minor is not None:
                numbers[name.lower().partition(".")[0]] = minor
    except OSError:
        return numbers
    return numbers
