"""A framework's function put into a span. It is called once whatever happens, and its errors are its own."""

from __future__ import annotations

from functools import wraps

from ett_collector.hooks import session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ett_collector.hooks.watched import Watched
    from ett_collector.recorder import Opened

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]
    Found = tuple[Watched, Opened]  # recorder, span
    Begin = Callable[[Arguments], Found | None]
    Done = Callable[[Watched, Arguments, Any], Any]


def put(
    owner: Any,
    name: str,
    hook: str,
    begin: Begin,
    done: Done | None = None,
    *,
    is_over: Callable[[], bool] = bool,
) -> None:
    """Replace a function of a module: `begin` opens the span before a call (or does not, with None).

    `done` is told the result after a call that had a span and came back. Where it `is_over` nobody is asked any
    more. Raises `AttributeError` where the module has no such function.
    """
    function = getattr(owner, name)

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if is_over():
            return function(*args, **options)
        found = None
        try:
            found = begin((args, options))
        except Exception as error:  # noqa: BLE001 - the hook alone fails
            session.failed(hook, error)
        if found is None:
            return function(*args, **options)
        recorder, opened = found
        try:
            result = function(*args, **options)
        except BaseException as error:
            recorder.finish(opened, raised=error)
            raise
        recorder.finish(opened)
        if done is not None:
            try:
                done(recorder, (args, options), result)
            except Exception as error:  # noqa: BLE001
                session.failed(hook, error)
        return result

    setattr(owner, name, called)


def opened(recorder: Watched | None, name: str, **fields: Any) -> Found | None:
    """A span of a hook, where there is a recorder and it takes one."""
    span = None if recorder is None else recorder.begin(name, **fields)
    return None if recorder is None or span is None else (recorder, span)
