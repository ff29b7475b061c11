"""torch.save and torch.load of checkpoints: of the state of a model or optimizer, and not called by torch itself.

Whether a file was a checkpoint is known once it is loaded, so a load is told when it is over. A save is committed
when it has returned, if it went to a file.
"""

from __future__ import annotations

import os
import sys
from functools import wraps
from time import monotonic_ns

from ett_collector.hooks import resume, session, steps
from ett_collector.hooks.checkpoint import BLOCKS, LOADS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ett_collector.hooks.watched import Watched

HOOK = "serialization"


def watch_files(module: Any) -> None:
    """`torch.serialization`."""
    module.save = _saving(module.save)
    module.load = _loading(module.load)


def _saving(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def save(*args: Any, **options: Any) -> Any:
        recorder = opened = None
        try:
            recorder = _recorder(sys._getframe(1).f_globals)  # noqa: SLF001
            if recorder is not None and resume.is_checkpoint(args[0] if args else options.get("obj")):
                opened = recorder.begin(BLOCKS, step=steps.last())
        except Exception as error:  # noqa: BLE001 - the hook alone fails
            session.failed(HOOK, error)
        if recorder is None or opened is None:
            return function(*args, **options)
        try:
            result = function(*args, **options)
        except BaseException as error:
            recorder.finish(opened, raised=error)
            raise
        recorder.finish(opened)
        try:
            _saved(recorder, args, options)
        except Exception as error:  # noqa: BLE001
            session.failed(HOOK, error)
        return result

    return save


def _loading(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def load(*args: Any, **options: Any) -> Any:
        recorder = _recorder(sys._getframe(1).f_globals)  # noqa: SLF001
        start = monotonic_ns()
        result = function(*args, **options)
        if recorder is not None:
            try:
                _loaded(recorder, (start, monotonic_ns()), result, _file(args, options))
            except Exception as error:  # noqa: BLE001
                session.failed(HOOK, error)
        return result

    return load


def _recorder(caller: dict[str, Any]) -> Watched | None:
    """The recorder, for a caller that is no part of torch."""
    name = str(caller.get("__name__", ""))
    return None if name == "torch" or name.startswith("torch.") else session.live()


def _file(args: tuple[Any, ...], options: dict[str, Any], at: int = 0) -> object:
    file = args[at] if len(args) > at else options.get("f")
    return file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)


def _saved(recorder: Watched, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    content = args[0] if args else options["obj"]
    last = steps.last()
    step = resume.entry(content) if last is None else last
    if step is not None and isinstance(_file(args, options, 1), (str, os.PathLike)):
        recorder.committed(step, "sync")


def _loaded(recorder: Watched, took: tuple[int, int], result: object, path: object) -> None:
    if not isinstance(result, dict) or not resume.is_checkpoint(result):
        return
    recorder.measured(LOADS, *took)
    step = resume.loaded_checkpoint(result, path)
    if step is not None:
        recorder.resumed(step)
