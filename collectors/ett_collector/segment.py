"""One file of a spool: created at its full size, mapped, and ready to be written without a system call.

A full disk shows here and nowhere else: the blocks are allocated, filled with zeros and their pages made
writable before the first record, because a store into a page without a block would kill the trainer by SIGBUS.
Only file systems that keep that promise are mapped. On others (NFS, FUSE, Lustre, copy on write ...) the same
slots are written by `pwrite`: slower, and an error is an error.
"""

from __future__ import annotations

import errno
import os
from itertools import count
from mmap import mmap
from typing import TYPE_CHECKING, Any

from ett_collector.slots import CLOSED_AT, COMMIT, FLAG, MAGIC, SLOT, VERSION, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    # What writes a slot: pack(view, offset, *words), the view, and the next free offset.
    At = tuple[Callable[..., object], Any, Callable[[], int]]

try:
    import fcntl
except ImportError:  # no POSIX locks: the agent goes by the pid alone
    fcntl = None  # type: ignore[assignment]

MAPPED = {"ext2", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs"}  # what reserves blocks for good
SMALLEST = 16 * 1024  # bytes of a file where there is no room for more
BITE = 64 * 1024  # how much is filled at once: nothing holds the interpreter for longer than that takes
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Segment:
    """`full` writes into any slot of the file, `early` refuses the last quarter with `struct.error`.

    The newest file carries a POSIX lock as long as its process lives (the kernel drops it with the process, and a
    forked child does not inherit it), so that an agent in another pid namespace sees who is alive.
    """

    __slots__ = ("_fd", "_owner", "early", "full", "is_used_up", "path", "size")

    def __init__(self, path: str, size: int, *, mapped: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        self.path = path
        self.is_used_up = False  # somebody has asked for a slot beyond its end
        self._owner = _Descriptor(os.open(path, flags, 0o640))
        self._fd = self._owner.number
        try:
            self.size = self._allocate(size) if mapped else size
            if fcntl is not None:
                try:  # noqa: SIM105 - contextlib would be imported for this alone
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    pass  # a file system without locks
            take = count(SLOT, SLOT).__next__
            most = self.size * 3 // 4 // SLOT * SLOT
            if mapped:
                view = memoryview(_map(self._fd, self.size))
                self.full: At = (WORDS.pack_into, view, take)
                self.early: At = (WORDS.pack_into, view[:most], take)
            else:
                self.full = (_File.pack_into, _File(self._owner, self.size), take)
                self.early = (_File.pack_into, _File(self._owner, most), take)
            self.full[0](self.full[1], 0, MAGIC, VERSION, self.size // SLOT, 0, 0, 0, 0, COMMIT)
        except BaseException:
            os.unlink(path)
            raise

    def _allocate(self, size: int) -> int:
        """Give the file all its blocks, fewer where there is no room for all; the size that it got."""
        while True:
            try:
                _reserve(self._fd, size)
                for at in range(0, size, BITE):
                    _fill(self._fd, at, min(BITE, size - at))
            except OSError as error:
                if error.errno not in _NO_ROOM or size <= SMALLEST:
                    raise
                size //= 2
                os.ftruncate(self._fd, 0)
            else:
                return size

    def is_removed(self) -> bool:
        """Whether nobody will find this file any more."""
        return os.fstat(self._fd).st_nlink == 0

    def finish(self) -> None:
        """No slot will be taken any more (one that is taken may still be written): the reader may go on."""
        view = self.full[1]
        if not isinstance(view, _File):
            FLAG.pack_into(view, CLOSED_AT, 1)
            return
        try:  # noqa: SIM105
            os.pwrite(self._fd, FLAG.pack(1), CLOSED_AT)
        except OSError:
            pass  # the reader goes on once the process is dead

    def close(self) -> None:
        """Let go of the lock. Memory and descriptor go with the last thread that still writes."""
        if fcntl is not None:
            try:  # noqa: SIM105
                fcntl.lockf(self._fd, fcntl.LOCK_UN)
            except OSError:
                pass


class _Descriptor:
    """An open file that is closed when nobody holds it any more: its number must not become another file's."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _File:
    """A file that must not be mapped, as something that `pack_into` can be called on."""

    __slots__ = ("_owner", "_size")

    def __init__(self, owner: _Descriptor, size: int) -> None:
        self._owner = owner
        self._size = size

    def __len__(self) -> int:
        return self._size

    @staticmethod
    def pack_into(file: _File, offset: int, *words: int) -> None:
        """`Struct.pack_into` for a file: `struct.error` beyond its end, `OSError` where it cannot be written."""
        if offset + SLOT > file._size:
            WORDS.pack_into(bytearray(), 0, *words)  # raises
        if os.pwrite(file._owner.number, WORDS.pack(*words), offset) != SLOT:
            raise OSError(errno.ENOSPC, "a slot was cut short")


def is_mappable(folder: str) -> bool:
    """Whether files in a folder may be mapped: a local file system that never takes back a block."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", errors="replace") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                if before.split(" ", 3)[2] == wanted:
                    return after.split(" ", 1)[0] in MAPPED
    except (OSError, IndexError):
        pass
    return False


def _reserve(fd: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        # a C library that does not do it where the file system does not: filling it does


def _fill(fd: int, at: int, size: int) -> None:
    zeros = memoryview(bytes(size))
    while zeros:
        done = os.pwrite(fd, zeros, at)
        zeros, at = zeros[done:], at + done


def _map(fd: int, size: int) -> mmap:
    """Map a file whose blocks are all there, and fault its pages in: the trainer shall not wait for them."""
    mapped = mmap(fd, size)
    for at in range(0, size, BITE):
        try:
            mapped.madvise(_POPULATE_WRITE, at, min(BITE, size - at))
        except (AttributeError, ValueError, OSError) as error:
            if getattr(error, "errno", None) == errno.EFAULT:
                raise  # the store would have been a SIGBUS
            break  # an older kernel: the blocks are there all the same
    return mapped
