"""Requests a second by token: buckets in a small file that all processes of this machine share.

A bucket holds as many requests as one second's. The file maps into memory: counting costs no database, holds over any
number of processes, and takes 2 MiB however many tokens there are. Machines count for themselves.
"""

from __future__ import annotations

import fcntl
import logging
import math
import mmap
import os
import stat
import struct
import tempfile
import threading
from hashlib import blake2b
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from fleet_ett.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet_ett.access import Grant

log = logging.getLogger(__name__)

SLOT = struct.Struct("=16sdd")  # hash of the token's id, requests left, since when (monotonic s)
TOGETHER = 8  # slots that a token may be in; the one that rests longest makes room
GROUPS = 8192
GROUP_BYTES = SLOT.size * TOGETHER
# For a lock that is held for microseconds, or as long as its holder does not run; one that is stopped stops nobody.
TRIES, PAUSE_S = 200, 0.0005
EMPTY = bytes(16)


class Rates:
    """The buckets. Safe for threads and processes. `path` None: of this process alone."""

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._inside = threading.Lock()
        self._file = None if path is None else _open(path)
        self._slots = mmap.mmap(-1 if self._file is None else self._file, GROUP_BYTES * GROUPS)

    def take(self, grant: Grant) -> None:
        """Count one request. Raises `Busy` beyond the token's rate."""
        if not grant.rate:
            return
        key = blake2b(grant.token_id.encode(), digest_size=16).digest()
        start = int.from_bytes(key[:8], "big") % GROUPS * GROUP_BYTES
        with self._inside:
            is_locked = self._lock(start)
            try:
                left = self._count(key, start, float(grant.rate))
            finally:
                if is_locked and self._file is not None:
                    fcntl.lockf(self._file, fcntl.LOCK_UN, GROUP_BYTES, start)
        if left < 0:
            msg = f"this token may ask {grant.rate} times a second"
            raise Busy(msg, retry_after_s=math.ceil(-left / grant.rate))

    def _count(self, key: bytes, start: int, rate: float) -> float:
        """What is left after this request; below 0 where it is one too many (and is not counted)."""
        now = self._clock()
        places = range(start, start + GROUP_BYTES, SLOT.size)
        held = [SLOT.unpack_from(self._slots, place) for place in places]
        at = next((at for at, slot in enumerate(held) if slot[0] == key), None)
        if at is None:
            at = min(range(TOGETHER), key=lambda at: (held[at][0] != EMPTY, held[at][2]))
            left = rate
        else:
            _, left, since = held[at]
            rested = now - since if now >= since else 1.0  # else the clock began anew with the machine
            left = min(rate, left + rested * rate)
        if left >= 1:
            SLOT.pack_into(self._slots, places[at], key, left - 1, now)
        return left - 1

    def _lock(self, start: int) -> bool:
        if self._file is None:
            return True
        for _ in range(TRIES):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, GROUP_BYTES, start)
            except BlockingIOError:
                sleep(PAUSE_S)
                continue
            return True
        return False


def shared_rates(of: str) -> Rates:
    """The buckets that all processes of this user and machine share for `of` (a database)."""
    parent = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = parent / f"fleet-ett-{os.getuid()}"
    name = blake2b(of.encode(), digest_size=8).hexdigest()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            msg = f"{folder} is not a folder of this user's alone"
            raise PermissionError(msg)
        return Rates(folder / f"rates-{name}")
    except OSError as error:
        log.warning("each process counts its requests for itself: %s", error)
        return Rates()


def _open(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.fstat(file).st_size != GROUP_BYTES * GROUPS:
        os.ftruncate(file, GROUP_BYTES * GROUPS)
    return file
