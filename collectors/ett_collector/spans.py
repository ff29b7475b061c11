"""Time that a trainer reports: a phase, or a wait for input. Both never raise and never swallow an exception.

A phase is written twice, when it begins and when it ends, so that a SIGKILL in between leaves an open span.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ett_collector.recorder import Opened, Recorder, Waiting

    Function = TypeVar("Function", bound=Callable[..., Any])

_COROUTINE = 0x80  # CO_COROUTINE; the inspect module costs more to import than all of this package


class Phase:
    """`with phase("checkpoint_load"):`, or `@phase("evaluation")` on a function (a span for each call).

    `find` answers the recorder of this process at the moment the phase begins.
    """

    __slots__ = ("_fields", "_find", "_opened")

    def __init__(self, find: Callable[[], Recorder | None], fields: dict[str, Any]) -> None:
        self._find = find
        self._fields = fields
        self._opened: list[tuple[Recorder, Opened | None]] = []

    def __enter__(self) -> Phase:
        recorder = self._find()
        if recorder is not None:
            self._opened.append((recorder, recorder.open_phase(self._fields)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened:
            recorder, opened = self._opened.pop()
            recorder.close_phase(opened, None if kind is None else kind.__name__)

    def __call__(self, function: Function) -> Function:
        """Decorate a function or coroutine function."""
        find, fields = self._find, self._fields
        code = getattr(function, "__code__", None)
        if code is not None and code.co_flags & _COROUTINE:

            @functools.wraps(function)
            async def awaited(*args: object, **options: object) -> object:
                with Phase(find, fields):
                    return await function(*args, **options)

            return cast("Function", awaited)

        @functools.wraps(function)
        def called(*args: object, **options: object) -> object:
            with Phase(find, fields):
                return function(*args, **options)

        return cast("Function", called)


class DataWait:
    """`with data_wait(): batch = next(batches)`: time in which the step waits for its input."""

    __slots__ = ("_find", "_waiting")

    def __init__(self, find: Callable[[], Recorder | None]) -> None:
        self._find = find
        self._waiting: list[tuple[Recorder, Waiting | None]] = []

    def __enter__(self) -> DataWait:
        recorder = self._find()
        if recorder is not None:
            self._waiting.append((recorder, recorder.open_wait()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waiting:
            recorder, waiting = self._waiting.pop()
            recorder.close_wait(waiting)
