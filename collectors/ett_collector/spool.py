"""The spool of one process: append-only files that outlive a SIGKILL of their writer.

Every record is one `write()` into the page cache: it is there for the agent the moment the call returns, and
nothing in the trainer waits for a disk to turn. A file is closed at `SEGMENT_BYTES` and the next one begun;
beyond the limit of all of them the oldest goes, counted. No method raises: what could not be written is
counted, and the count is written as soon as writing works again.

The newest file carries a POSIX lock as long as its process lives (the kernel drops it with the process, and a
forked child does not inherit it), so that an agent in another pid namespace still sees who is alive.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from time import monotonic

from ett_collector.frames import frame, pack

try:
    import fcntl
except ImportError:  # no POSIX locks: the agent goes by the pid alone
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".spool"
HEAD_VERSION = 1  # of the record that opens each file
SEGMENT_BYTES = 16 * 1024 * 1024
LIMIT_BYTES = 256 * 1024 * 1024
CHECK_S = 5.0  # how often a lost folder is noticed, and a failed open tried again


def segment_name(name: str, number: int) -> str:
    """The file of one segment of a spool."""
    return f"{name}.{number:06d}{SUFFIX}"


class Spool:
    """Appends records for one process. `head` opens each segment; `dropped` counts records that are lost."""

    def __init__(
        self,
        folder: str,
        name: str,
        head: bytes,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        limit_bytes: int = LIMIT_BYTES,
        private: bool = False,
    ) -> None:
        self.folder = folder
        self.name = name
        self.dropped = 0
        self.error = ""
        self._head = head
        self._segment_bytes = segment_bytes
        self._limit_bytes = limit_bytes
        self._private = private  # the folder has a guessable name in a shared place
        # Re-entrant: a signal handler of the trainer may record while its own thread is recording.
        self._lock = threading.RLock()
        self._fd = -1
        self._number = 0
        self._size = 0
        self._records = 0
        self._torn = False
        self._untold = 0
        self._check_at = 0.0
        self._closed: deque[tuple[str, int, int]] = deque()
        self._live = True

    def append(self, payload: bytes) -> None:
        """Write one record (a JSON object as bytes); on any failure count it and return."""
        line = frame(payload)
        with self._lock:
            if not self._live:
                return
            try:
                if monotonic() >= self._check_at:
                    self._inspect()
                self._put(line)
            except (OSError, ValueError) as error:
                self._lose(error)

    def close(self) -> None:
        """Stop writing; the files stay for the agent."""
        with self._lock:
            self._live = False
            self._shut()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file, and of a lock that a lost thread may hold."""
        self._live = False
        self._lock = threading.RLock()
        self._shut()

    def _put(self, line: bytes) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, self.error or "the spool is not open")
        if self._size + len(line) > self._segment_bytes and self._records:
            self._rotate()
        told = self._untold
        if told:
            line = pack({"t": "lost", "n": told, "error": self.error}) + line
        try:
            self._write(line)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            self._rotate()  # a limit on the size of one file: another one has room
            self._write(line)
        self._records += 1
        self._untold -= told

    def _write(self, line: bytes) -> None:
        if self._torn:
            line = b"\n" + line  # what a full disk cut short ends here, and is skipped by its checksum
        while line:
            written = os.write(self._fd, line)
            self._size += written
            line = line[written:]
            self._torn = bool(line)  # the next write says why

    def _lose(self, error: Exception) -> None:
        self.dropped += 1
        self._untold += 1
        self.error = str(error)[:200]

    def _inspect(self) -> None:
        self._check_at = monotonic() + CHECK_S
        if self._fd >= 0 and os.fstat(self._fd).st_nlink > 0:
            return
        if self._fd >= 0:  # the folder or the file was removed under us: begin a new file
            self._shut()
        self._open()

    def _rotate(self) -> None:
        self._closed.append((self._path(self._number), self._size, self._records))
        self._shut()
        while (
            self._closed
            and self._segment_bytes + sum(size for _, size, _ in self._closed) > self._limit_bytes
        ):
            path, _, records = self._closed.popleft()
            try:
                os.unlink(path)
            except OSError:
                continue  # the agent has taken it over already
            self.dropped += records
            self._untold += records
            self.error = "spool over its limit, oldest records dropped"
        self._open()

    def _open(self) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        if self._private and os.lstat(self.folder).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the spool folder belongs to another user", self.folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        self._number += 1
        self._size, self._records, self._torn = 0, 0, False
        self._fd = os.open(self._path(self._number), flags, 0o640)
        if fcntl is not None:
            try:  # noqa: SIM105 - contextlib would be imported for this alone
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pass  # a file system without locks
        try:
            self._write(frame(self._head))
        except OSError:
            self._shut()  # without its head nobody could tell whose records these are
            os.unlink(self._path(self._number))
            raise

    def _shut(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:  # noqa: SIM105
                os.close(fd)
            except OSError:
                pass

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, segment_name(self.name, number))
