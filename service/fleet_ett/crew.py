"""Several processes of one service: the parent starts them, replaces who dies, and takes them all down with it.

Children are forks: they share the parent's memory of code and its listening socket. A pipe that only the parent holds
open tells them when it is gone, however it went: SIGKILL to the parent is SIGKILL to all, as it were to one process.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    Ready = Callable[[], None]
    Role = Callable[[Ready], None]

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
SHORT_LIFE_S = 1.0  # whoever lives no longer is replaced later and later
LONGEST_PAUSE_S = 5.0


class Stopped(SystemExit):
    """SIGTERM: unwind and leave with 0."""


@dataclass(slots=True)
class _Post:
    """A role, and who has it: `pid` is None while nobody has. Times are monotonic s."""

    name: str
    role: Role
    pid: int | None = None
    began: float = 0.0
    pause: float = 0.0
    not_before: float = 0.0


class Crew:
    """The processes of a service. `patience` is how many seconds they get to end in order."""

    def __init__(self, roles: Mapping[str, Role], *, patience: float) -> None:
        self._posts = [_Post(name, role) for name, role in roles.items()]
        self._patience = patience
        self._stop_by: float | None = None

    def run(self, started: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Keep every role taken until SIGTERM or SIGINT. In the main thread of a process without other threads.

        A role is called in a process of its own with a function to call once it is at work; at the first such call
        `started` is called here, and `stopping` before the processes are told to end.
        """
        with ExitStack() as stack:
            alive = stack.enter_context(_pipe())  # nothing is ever written to it
            ready = stack.enter_context(_pipe())
            woken = stack.enter_context(self._signals())
            gc.freeze()  # what is there by now stays shared
            is_started = False
            while self._stop_by is None or any(post.pid for post in self._posts):
                if self._stop_by is None:
                    self._fill(alive, ready)
                readable, _, _ = select.select([woken.fileno(), ready[0]], [], [], self._until())
                if ready[0] in readable:
                    os.read(ready[0], 100)
                    if not is_started:
                        started()
                    is_started = True
                if woken.fileno() in readable:
                    told = woken.recv(100)
                    if self._stop_by is None and not {signal.SIGTERM, signal.SIGINT}.isdisjoint(told):
                        stopping()
                        self._stop()
                self._reap()
                if self._stop_by is not None and time.monotonic() > self._stop_by:
                    self._signal_all(signal.SIGKILL)

    @contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """A socket that tells the numbers of signals as they come."""
        woken, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())  # first: what the handlers get is told nowhere else
        before = {one: signal.signal(one, _ignore) for one in SIGNALS}
        try:
            with woken, waker:
                yield woken
        finally:
            signal.set_wakeup_fd(-1)
            for one, handler in before.items():
                signal.signal(one, handler)

    def _fill(self, alive: tuple[int, int], ready: tuple[int, int]) -> None:
        for post in self._posts:
            if post.pid is None and time.monotonic() >= post.not_before:
                post.began = time.monotonic()
                sys.stdout.flush()
                sys.stderr.flush()
                signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until it is clear whose they are
                post.pid = os.fork()
                if post.pid == 0:
                    _live(post, alive, ready)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _until(self) -> float | None:
        """Seconds until something is to be done."""
        if self._stop_by is not None:
            return max(self._stop_by - time.monotonic(), 0) + 0.1
        due = [post.not_before for post in self._posts if post.pid is None]
        return max(min(due) - time.monotonic(), 0) if due else None

    def _reap(self) -> None:
        for post in self._posts:
            if post.pid is None:
                continue
            pid, status = os.waitpid(post.pid, os.WNOHANG)
            if not pid:
                continue
            post.pid = None
            if self._stop_by is not None:
                continue
            lived = time.monotonic() - post.began
            post.pause = 0.0 if lived > SHORT_LIFE_S else min(post.pause * 2 + 0.1, LONGEST_PAUSE_S)
            post.not_before = time.monotonic() + post.pause
            log.error("%s (process %d) ended: %s; it is replaced", post.name, pid, _how(status))

    def _stop(self) -> None:
        self._stop_by = time.monotonic() + self._patience
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for post in self._posts:
            if post.pid is not None:
                os.kill(post.pid, number)


def _live(post: _Post, alive: tuple[int, int], ready: tuple[int, int]) -> None:
    """The life of a child: never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.close(alive[1])
        threading.Thread(target=_follow, args=(alive[0],), daemon=True).start()
        post.role(partial(_tell, ready[1]))
        code = 0
    except KeyboardInterrupt:
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
    except BaseException:
        log.exception("%s broke", post.name)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _tell(ready: int) -> None:
    os.write(ready, b"!")


def _follow(alive: int) -> None:
    """End this process the moment that its parent is gone: the next service may want its port."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def stop(_signal: int, _frame: FrameType | None) -> None:
    """A signal's handler: unwind."""
    raise Stopped(0)


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """It is read from the socket."""


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"code {code}"


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for one in ends:
            os.close(one)
