"""Time that a trainer reports: a phase, or a wait for input. Both never raise and never swallow an exception.

A phase is written twice, when it begins and when it ends, so that a SIGKILL in between leaves an open span.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself would cost a third of the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    from ett_collector.recorder import Recorder

    Function = TypeVar("Function", bound=Callable[..., Any])


class Phase:
    """`with phase("checkpoint_load"):`, or `@phase("evaluation")` on a function (a span for each call).

    A decorated generator is timed while it works, from each `next` to its `yield`; a coroutine from its first
    step to its last. `find` answers the recorder of this process at the moment the phase begins. `key` is what
    all spans of this kind share: (name, overlapped, work_key).
    """

    __slots__ = ("_find", "_opened", "attrs", "key", "step")

    def __init__(
        self,
        find: Callable[[], Recorder | None],
        key: tuple[str, bool, str | None],
        step: int | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> None:
        self._find = find
        self.key = key
        self.step = step
        self.attrs = attrs
        self._opened: Any = None  # (what was opened before it, recorder, span): it may be entered again

    def __enter__(self) -> Phase:
        recorder = self._find()
        if recorder is not None:
            self._opened = (self._opened, recorder, recorder.open_phase(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened, recorder, opened = self._opened
            if opened is not None:
                recorder.close_phase(opened, None if kind is None else kind.__name__)

    def again(self) -> Phase:
        """A phase like this one, for another call."""
        return Phase(self._find, self.key, self.step, self.attrs)

    def __call__(self, function: Function) -> Function:
        """Decorate a function, coroutine function or generator function, also an asynchronous one."""
        from ett_collector.wrapped import wrapped  # noqa: PLC0415 - functools is not needed to record

        return wrapped(self, function)


class DataWait:
    """`with data_wait(): batch = next(batches)`: time in which the step waits for its input."""

    __slots__ = ("_find", "_waiting")

    def __init__(self, find: Callable[[], Recorder | None]) -> None:
        self._find = find
        self._waiting: Any = None

    def __enter__(self) -> DataWait:
        recorder = self._find()
        if recorder is not None:
            self._waiting = (self._waiting, recorder, recorder.open_wait())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waiting is not None:
            self._waiting, recorder, begun = self._waiting
            recorder.close_wait(begun)
