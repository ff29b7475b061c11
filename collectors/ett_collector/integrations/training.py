"""What the integrations share: one recorder a process, and a last word on how training went.

A framework says that training ended long before the process does (a last save, an export, another round). So the
word is given when the interpreter ends, by what was last known; the time until then is `drain_and_teardown`.
What nobody sees coming (SIGKILL, `os._exit`) the agent tells, and an exception that nobody caught the recorder.
"""

from __future__ import annotations

import atexit
import logging
import sys
from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING

import ett_collector as ett
from ett_collector.null import NullRecorder
from ett_collector.recorder import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ett_collector.spans import DataWait, Phase

log = logging.getLogger("ett_collector")
TEARDOWN = "drain_and_teardown"


class Around:
    """A phase in which something more exact may be told: written once it is over, and what lies in it is inner.

    (In a phase that is open, hooks leave the telling to whoever opened it.)
    """

    __slots__ = ("_name", "_start")

    def __init__(self, name: str) -> None:
        self._name = name
        self._start = 0

    def __enter__(self) -> None:
        self._start = time_ns()

    def __exit__(self, *_raised: object) -> None:
        ett.current().span(self._name, self._start, time_ns())


class Training:
    """The training of this process, as its framework tells it. No method raises into the framework."""

    def __init__(self) -> None:
        self._outcome: str | None = None
        self._error = (
            0  # the id of what was raised: the exception itself would keep its frames, and their tensors
        )
        self._text: str | None = None
        self._teardown: Phase | None = None
        self._open: dict[str, Phase | DataWait | Around] = {}
        self._watched = False

    def start(self, framework: str) -> None:
        """Begin to record, unless that has been done: an `ett.start` of the user's own goes before this one."""
        if isinstance(ett.current(), NullRecorder):
            ett.start(framework=framework)
        ett.current().takes_over()
        if not self._watched:
            self._watched = True
            atexit.register(self._at_exit)  # after the recorder's, so it is called before it

    def begin(self) -> None:
        """Training begins (again)."""
        self._outcome, self._error, self._text = None, 0, None
        if self._teardown is not None:
            self._teardown.__exit__(None, None, None)
            self._teardown = None

    def done(self) -> None:
        """Training is complete; what follows until the process ends is no part of it."""
        self.close_all()
        self._outcome = "completed"
        if self._teardown is None:
            self._teardown = ett.phase(TEARDOWN)
            self._teardown.__enter__()

    def stopped(self, error: BaseException, outcome: str | None = None, text: str | None = None) -> None:
        """Training was ended by an exception. A plain `SystemExit` says nothing: the exit status does."""
        self.close_all()
        if isinstance(error, SystemExit) and outcome is None:
            return
        self._outcome = outcome or ("cancelled" if isinstance(error, KeyboardInterrupt) else "failed")
        self._error = id(error)
        self._text = text or error_text(error)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Training from beginning to end: for a framework with one function around it."""
        self.begin()
        try:
            yield
        except BaseException as error:
            self.stopped(error)
            raise
        self.done()

    def open(self, name: str, span: Phase | DataWait | Around | None = None) -> None:
        """A phase (or whatever `span` is) begins that the framework tells in two calls; `close` ends it."""
        self.close(name)
        self._open[name] = span or ett.phase(name)
        self._open[name].__enter__()

    def close(self, name: str) -> None:
        """The phase that `open` began is over; nothing where there is none."""
        found = self._open.pop(name, None)
        if found is not None:
            found.__exit__(None, None, None)

    def close_all(self) -> None:
        """No phase is open any more, whatever the framework did not tell."""
        for name in list(self._open):
            self.close(name)

    def _at_exit(self) -> None:
        raised = getattr(sys, "last_value", None)  # an exception that nobody caught, by now
        if self._outcome is None or (raised is not None and id(raised) != self._error):
            return
        if self._teardown is not None:
            self._teardown.__exit__(None, None, None)
            self._teardown = None
        ett.end(self._outcome, error=self._text)


TRAINING = Training()  # of this process


def wrap(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Replace a function of a class or module by `around(it)`, once; whether it is there.

    Frameworks rename what is theirs: what is missing is told in the log, and its time is then in what is around it.
    """
    original = getattr(owner, name, None)
    if not callable(original):
        log.info("%s has no %s: not timed", getattr(owner, "__name__", owner), name)
        return False
    if getattr(original, "_ett_wrapped", False):
        return True
    wrapped = around(original)
    wrapped._ett_wrapped = True  # type: ignore[attr-defined]  # noqa: SLF001 - a mark of ours
    setattr(owner, name, wrapped)
    return True
