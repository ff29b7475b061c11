"""Append-only files of framed records, made durable, read again after any kill, dropped from the front.

Each file begins with a record that holds everything needed from the files before it (a snapshot), so that a
file may go as soon as nothing in it is needed any more. A torn record at a tail never happened.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector.frames import pack, unframe

if TYPE_CHECKING:
    from collections.abc import Iterator


class Place(NamedTuple):
    """Where a record lies: file number, byte offset, length."""

    number: int
    offset: int
    length: int


class Journal:
    """The files `outbox.<number>.log` of a folder. Raises `OSError` where a record could not be kept."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._sizes: dict[int, int] = {}
        for name in os.listdir(folder):
            prefix, _, rest = name.partition(".")
            if prefix == "outbox" and rest.endswith(".log") and rest[:-4].isdigit():
                self._sizes[int(rest[:-4])] = os.path.getsize(os.path.join(folder, name))
        self._number = max(self._sizes, default=0)
        self._fd = -1

    @property
    def number(self) -> int:
        """The number of the newest file."""
        return self._number

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self._sizes.values())

    def size_of_newest(self) -> int:
        """Bytes of the newest file."""
        return self._sizes.get(self._number, 0)

    def records(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        """All whole records in order. A file whose snapshot is torn was never used, and is skipped."""
        for number in sorted(self._sizes):
            with open(self._path(number), "rb") as file:
                offset = 0
                for line in file:
                    record = unframe(line) if line.endswith(b"\n") else None
                    if record is None and offset == 0:
                        break
                    if record is not None:
                        yield Place(number, offset, len(line)), record
                    offset += len(line)

    def begin(self, snapshot: dict[str, Any]) -> None:
        """Begin a new file; from here on it alone is written."""
        number = max(self._sizes, default=0) + 1
        path = self._path(number)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            line = pack(snapshot)
            _write(fd, line)
            os.fsync(fd)
            self._sync_folder()
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        self.close()
        self._fd, self._number, self._sizes[number] = fd, number, len(line)

    def append(self, record: dict[str, Any], *, durable: bool) -> Place:
        """Append a record; with `durable` it is on the disk when this returns."""
        line = pack(record)
        place = Place(self._number, self._sizes[self._number], len(line))
        try:
            _write(self._fd, line)
            if durable:
                os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, place.offset)  # as if it had never been tried
            raise
        self._sizes[self._number] += len(line)
        return place

    def read(self, place: Place) -> dict[str, Any] | None:
        """The record at a place; None where the file is damaged."""
        with open(self._path(place.number), "rb") as file:
            file.seek(place.offset)
            return unframe(file.read(place.length))

    def drop_before(self, number: int) -> None:
        """Delete the files before one; the newest always stays."""
        for old in [n for n in self._sizes if n < min(number, self._number)]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(old))
            del self._sizes[old]

    def close(self) -> None:
        """Close the newest file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"outbox.{number:08d}.log")

    def _sync_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
