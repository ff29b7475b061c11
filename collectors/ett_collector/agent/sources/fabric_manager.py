"""The log of NVIDIA's fabric manager: errors of the NVSwitches, where the kernel's log cannot be read."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from ett_collector.agent.sources.source import Fault, Missing, Read

if TYPE_CHECKING:
    from ett_collector.agent.sources.source import Finding, Surroundings

CHUNK_BYTES = 256 * 1024
TEXT = 500
_LINE = re.compile(r"^\[(\w{3} \d{1,2} \d{4} \d\d:\d\d:\d\d)\] \[ERROR\] \[tid \d+\] (.*)$")
_ERROR = re.compile(r"NVSwitch (?:non-)?fatal error (\d+)", re.IGNORECASE)


def parse_line(line: str) -> Fault | None:
    """An error of an NVSwitch with its SXID. Its stamp is in the node's own zone, to the second."""
    found = _LINE.match(line)
    error = _ERROR.search(found[2]) if found is not None else None
    if found is None or error is None:
        return None
    try:
        at = int(time.mktime(time.strptime(found[1], "%b %d %Y %H:%M:%S"))) * 1_000_000_000
    except (ValueError, OverflowError):
        return None
    return Fault(at, "other", found[2][:TEXT], int(error[1]))


class FabricManager:
    """Reads the log as it grows, from its end at the first look; a log that was rotated from its beginning."""

    def __init__(self, around: Surroundings, cursor: dict[str, Any] | None) -> None:
        self._path = around.fabric_log
        self._inode = int(cursor["inode"]) if cursor is not None else None
        self._offset = int(cursor["offset"]) if cursor is not None else 0

    def open(self) -> None:
        """Raises `Missing` where there is no such log, or it may not be read."""
        try:
            with open(self._path, "rb") as file:
                found = os.fstat(file.fileno())
        except OSError as error:
            msg = f"{self._path}: {error.strerror}"
            raise Missing(msg) from error
        if self._inode is None:
            self._inode, self._offset = found.st_ino, found.st_size

    def read(self) -> Read:
        """The whole lines that were not read yet."""
        with open(self._path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._offset:
                self._inode, self._offset = found.st_ino, 0
            file.seek(self._offset)
            data = file.read(CHUNK_BYTES)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == CHUNK_BYTES:
            whole = CHUNK_BYTES  # no log line is that long
        if not whole:
            return Read([])
        self._offset += whole
        faults = map(parse_line, data[:whole].decode(errors="replace").splitlines())
        findings: list[Finding] = [one for one in faults if one is not None]
        return Read(findings, {"inode": self._inode, "offset": self._offset})

    def close(self) -> None:
        """Nothing is held."""
