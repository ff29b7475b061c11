"""The spool of one process: mapped files that outlive a SIGKILL of their writer.

A record is in the page cache the moment `put` returns, without a system call, a lock or a wait. The next file is
made in a thread of its own when three quarters of the current one are used, so that no disk is waited for in
the trainer's way: at most `PATIENCE_S`, once, where the thread could not keep up. Beyond the limit of all files
the oldest goes. No method raises: what could not be written is counted, and the count is written as soon as
writing works again.

Safe from any thread and from signal handlers in the middle of any call: a slot is taken by one call into C, the
rest is idempotent.
"""

from __future__ import annotations

import errno
import os
from _thread import RLock, allocate_lock, start_new_thread
from collections import deque
from itertools import count
from struct import error as StructError  # noqa: N812 - nobody would take `error` for an exception
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from ett_collector import segment as segments
from ett_collector.frames import encode, frame
from ett_collector.segment import SMALLEST, Segment
from ett_collector.slots import ANCHOR, COMMIT, SLOT, VERSION, VOID, WORDS, pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from ett_collector.segment import At

    Place = tuple[Callable[..., object], Any, Callable[[], int], Segment | None]

SUFFIX = ".spool"
FIRST_BYTES = 128 * 1024  # of the first file; each next one is twice as large, up to SEGMENT_BYTES
SEGMENT_BYTES = 1024 * 1024
LIMIT_BYTES = 256 * 1024 * 1024
CHECK_S = 5.0  # how often a lost folder is noticed, and a failed file tried again
PATIENCE_S = 0.2  # longest wait for a file that is being made
START_S = 2.0  # the same for the first one
TRIES = 20  # for a note to lie in one file
TURNS = 100  # of a thread that finds each new file used up by others
HEAD_VERSION = VERSION


def segment_name(name: str, number: int) -> str:
    """The file of one segment of a spool."""
    return f"{name}.{number:06d}{SUFFIX}"


def _nowhere() -> Place:
    return WORDS.pack_into, bytearray(), count(0, SLOT).__next__, None


class Spool:
    """Writes records for one process. `head` opens each file; `dropped` counts records that are lost.

    `at` is where the next slot goes: (pack, view, take) of one file and the file, replaced as a whole.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        head: dict[str, Any],
        *,
        limit_bytes: int = LIMIT_BYTES,
        private: bool = False,
    ) -> None:
        self.folder = folder
        self.name = name
        self.dropped = 0
        self.error = ""
        self.at: Place = _nowhere()
        self._head = frame(encode(head))
        self._limit_bytes = limit_bytes
        self._private = private  # the folder has a guessable name in a shared place
        self._lock = RLock()  # for bookkeeping only: nobody waits for a disk while holding it
        self._notes = count(1)
        self._preamble: list[bytes] = []  # notes that every later file begins with
        self._known: tuple[list[bytes], int] = (self._preamble, 0)  # of them, those in the file in `_ready`
        self._anchor: tuple[int, ...] = ()
        self._current: Segment | None = None
        self._ready: Segment | None = None
        self._making: Any = None  # a lock that is released when a file was made, or could not be
        self._waited = False  # somebody has waited for the file being made already
        self._number = 0
        self._untold = 0
        self._try_at = 0.0
        self._used: deque[tuple[str, int]] = deque()  # files before the current one
        self._live = True
        self._make_first()
        self._advance()

    def put(
        self, kind: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0, f: int = 0
    ) -> object:
        """Write one slot. What it answers is one object for all slots of one file; None where it was lost."""
        pack, view, take, file = self.at
        slot = take()
        try:
            pack(view, slot, kind, a, b, c, d, e, f, COMMIT)
        except (StructError, OSError) as error:
            return self._put_again(error, (pack, view, take, file), slot, (kind, a, b, c, d, e, f))
        return take

    def note(self, record: dict[str, Any], *, again: bool = False) -> None:
        """Write a JSON object over as many slots as it needs; `again`: into every later file too."""
        payload = frame(encode(record))
        self._put_note(payload)
        if again:
            self._preamble.append(payload)

    def forget_again(self) -> None:
        """What was noted `again` so far need not stand in later files."""
        self._preamble = []

    def set_anchor(self, mono: int, anchor: int) -> None:
        """Write what stamps are on the wall from here on; every later file begins with it."""
        self._anchor = (ANCHOR, mono, anchor)
        if self._current is not None:
            self.put(*self._anchor)

    def inspect(self) -> None:
        """Begin a new file where somebody has removed the current one."""
        current = self._current
        if current is None or not self._live or not current.is_removed():
            return
        with self._lock:
            ready = self._ready
            if self._current is current:
                self._current, self._ready, self.at = None, None, _nowhere()
        for lost in (current, ready):
            if lost is not None:
                lost.close()

    def lose(self, error: object) -> None:
        """Count a record that is lost."""
        with self._lock:
            self.dropped += 1
            self._untold += 1
            self.error = str(error)[:200]

    def close(self) -> None:
        """Stop writing; the files stay for the agent."""
        with self._lock:
            self._live, self.at = False, _nowhere()
            current, self._current = self._current, None
        if current is not None:
            current.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file, and of a lock that a lost thread may hold."""
        self._live, self.at = False, _nowhere()
        self._lock = RLock()
        current, self._current = self._current, None
        if current is not None:
            current.close()

    def _put_note(self, payload: bytes) -> None:
        note = next(self._notes)
        parts = pieces(note, payload)
        for _ in range(TRIES):
            files = set()
            for words in parts:
                file = self.put(*words)
                if file is None:
                    return  # and counted, once
                files.add(file)
            if len(files) == 1:
                return
            # a file ended in the middle: the reader passes over a part, and finds the whole in the next one
            current = self._current
            if current is not None and len(parts) >= current.size // SLOT // 2:
                break
        self.lose("a note does not fit into a file")

    def _put_again(self, error: Exception, at: Place, slot: int, words: tuple[Any, ...]) -> object:
        """The slot did not take the words: the file is full, the words are none, or the disk says no."""
        if isinstance(error, OSError):
            self.lose(error)
            return None
        pack, view, take, file = at
        if slot + SLOT <= len(view):
            return self._put_whole((pack, view, take), slot, words)
        if file is None:
            return self._put_elsewhere(words)
        if slot + SLOT <= file.size:  # three quarters are used
            if file is self._current:
                self._make()
                self._use_whole(file)
            return self._try(file.full, slot, words)
        file.is_used_up = True
        return self._put_elsewhere(words)

    def _put_elsewhere(self, words: tuple[Any, ...]) -> object:
        """Write into the next file, made or waited for here if need be."""
        for _ in range(TURNS):
            if not self._live:
                return None
            if not self._advance():
                self._make()
                if not self._wait(PATIENCE_S):
                    break
                continue
            current = self._current
            if current is None:
                continue
            slot = current.full[2]()
            if slot + SLOT <= current.size:
                self._use_whole(current)
                return self._try(current.full, slot, words)
            current.is_used_up = True  # other threads were faster
        self.lose(self.error or "no file")
        return None

    def _use_whole(self, segment: Segment) -> None:
        with self._lock:
            if self._current is segment and (self._ready or self._making):
                self.at = (*segment.full, segment)

    def _try(self, at: At, slot: int, words: tuple[Any, ...]) -> object:
        try:
            at[0](at[1], slot, *words, COMMIT)
        except StructError:
            return self._put_whole(at, slot, words)
        except OSError as error:
            self.lose(error)
            return None
        return at[2]

    def _put_whole(self, at: At, slot: int, words: tuple[Any, ...]) -> object:
        """Words that are no integers of 64 bits, but may stand for some; else the slot is void, and it raises."""
        try:
            at[0](at[1], slot, *(int(word) for word in words), COMMIT)
        except BaseException:
            at[0](at[1], slot, VOID, 0, 0, 0, 0, 0, 0, COMMIT)
            raise
        return at[2]

    def _advance(self) -> bool:
        """Go on to the file that is ready. Whether there is one to write into."""
        with self._lock:
            ready, current = self._ready, self._current
            if current is not None and not current.is_used_up:
                return True  # somebody was faster
            if ready is None:
                return False
            self._current, self.at, self._ready = ready, (*ready.early, ready), None
            preamble, (listed, known) = self._preamble, self._known
            missing = preamble[known:] if preamble is listed else preamble
            untold, self._untold = self._untold, 0
            if current is not None:
                self._used.append((current.path, current.size))
        if self._anchor:
            self.put(*self._anchor)
        for payload in list(missing):
            self._put_note(payload)
        if untold:
            self._put_note(frame(encode({"t": "lost", "n": untold, "error": self.error})))
        if current is not None:
            current.finish()
            current.close()
        return True

    def _wait(self, seconds: float) -> bool:
        """Wait for the file that is being made, if there is one; whether to look again."""
        making = self._making
        if making is None:  # made and taken meanwhile, or not to be had for now
            return self._ready is not None or monotonic() >= self._try_at
        if self._waited or not making.acquire(timeout=seconds):
            self._waited = True  # a disk that hangs: nobody waits for it twice
            return False
        making.release()
        return True

    def _make(self) -> None:
        """Begin to make the next file, unless it is there, being made, or failed a moment ago."""
        with self._lock:
            if self._ready is not None or self._making is not None or monotonic() < self._try_at:
                return
            self._making, self._waited = allocate_lock(), False
            self._making.acquire()
        try:
            start_new_thread(self._make_next, ())
        except RuntimeError:  # no more threads, or the interpreter is ending
            self._make_next()

    def _make_first(self) -> None:
        """Make the first file, and wait until it is there and the thread is gone: a trainer may fork at once."""
        self._making = allocate_lock()
        self._making.acquire()
        thread = Thread(target=self._make_next, name="ett-spool", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._make_next()
        else:
            thread.join(START_S)

    def _make_next(self) -> None:
        try:
            preamble = self._preamble
            known = len(preamble)
            ready = self._new_segment()
            for payload in (self._head, *preamble[:known]):
                parts = [(ready.full[2](), words) for words in pieces(next(self._notes), payload)]
                # the first piece last: where the process ends in between nothing was begun, and nothing is torn
                for slot, words in reversed(parts):
                    ready.full[0](ready.full[1], slot, *words, COMMIT)
            with self._lock:
                self._ready, self._known = ready, (preamble, known)
            self._drop_oldest(ready.size)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self.error = str(error)[:200]
            self._try_at = monotonic() + CHECK_S
        finally:
            making, self._making = self._making, None
            if making is not None:
                making.release()

    def _new_segment(self) -> Segment:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        if self._private and os.lstat(self.folder).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the spool folder belongs to another user", self.folder)
        size = max(SMALLEST, min(FIRST_BYTES << min(self._number, 20), SEGMENT_BYTES))
        path = os.path.join(self.folder, segment_name(self.name, self._number + 1))
        made = Segment(path, size, mapped=segments.is_mappable(self.folder))
        self._number += 1
        return made

    def _drop_oldest(self, newest: int) -> None:
        while self._used:
            current = self._current
            held = newest + (current.size if current is not None else 0) + sum(size for _, size in self._used)
            if held <= self._limit_bytes:
                return
            path, size = self._used.popleft()
            try:
                os.unlink(path)
            except OSError:
                continue  # the agent has taken it over already
            with self._lock:
                self.dropped += size // SLOT - 1
                self._untold += size // SLOT - 1
                self.error = "spool over its limit, oldest records dropped"
