"""torch.distributed.checkpoint: `save`, `async_save` and `load`, in the thread that trains.

What an `async_save` does before it returns blocks, and so does a wait for its result; the rest is
`checkpoint_save_async`, beside the steps. A checkpoint is committed when all ranks have written, which the
coordinator (rank 0 of its group) tells: a save that has returned, an upload that is complete.
"""

from __future__ import annotations

import sys
from functools import wraps

from ett_collector.hooks import resume, session, steps
from ett_collector.hooks.around import opened, put

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ett_collector.hooks.around import Arguments, Found
    from ett_collector.hooks.watched import Watched

HOOK = "checkpoint"
BLOCKS, BESIDE, LOADS = "checkpoint_save_block", "checkpoint_save_async", "checkpoint_load"


def watch_saves(module: Any) -> None:
    """`torch.distributed.checkpoint.state_dict_saver`."""
    put(module, "save", HOOK, _save, _saved)
    put(module, "async_save", HOOK, _save, _saving)


def watch_loads(module: Any) -> None:
    """`torch.distributed.checkpoint.state_dict_loader`."""
    put(module, "load", HOOK, lambda _: opened(_recorder(), LOADS), _loaded)


def _recorder() -> Watched | None:
    return session.live() or session.act()


def _save(_: Arguments) -> Found | None:
    return opened(_recorder(), BLOCKS, step=steps.last())


def _saved(recorder: Watched, arguments: Arguments, _result: object) -> None:
    _commit(recorder, arguments, _step(arguments), "sync")


def _saving(recorder: Watched, arguments: Arguments, result: Any) -> None:
    """An asynchronous save has returned: what goes on is told by the future that it answered."""
    step = _step(arguments)
    span = recorder.begin(BESIDE, overlapped=True, step=steps.last())
    future = getattr(result, "upload_completion", result)

    def ended(done: Any) -> None:
        try:
            error = done.exception()
            if span is not None:
                recorder.finish(span, raised=error)
            if error is None:
                _commit(recorder, arguments, step, "async")
        except Exception as wrong:  # noqa: BLE001 - the hook alone fails
            session.failed(HOOK, wrong)

    future.add_done_callback(ended)
    for one in {id(it): it for it in (future, getattr(result, "staging_completion", future))}.values():
        one.result = _waited_for(one, one.result)


def _waited_for(future: Any, result: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(result)
    def called(*args: Any, **options: Any) -> Any:
        found = None
        try:
            if not future.done():
                found = opened(session.live(), BLOCKS)
        except Exception as error:  # noqa: BLE001
            session.failed(HOOK, error)
        try:
            return result(*args, **options)
        finally:
            if found is not None:
                found[0].finish(found[1])

    return called


def _loaded(recorder: Watched, arguments: Arguments, _result: object) -> None:
    content, path = _content(arguments), _path(arguments)
    step = resume.loaded_checkpoint(content, path)
    if step is None:
        step = resume.loaded_from(path)
    if step is not None:
        recorder.resumed(step)


def _commit(recorder: Watched, arguments: Arguments, step: int | None, mode: str) -> None:
    group = arguments[1].get("process_group")
    distributed: Any = sys.modules["torch.distributed"]
    alone = not distributed.is_available() or not distributed.is_initialized()
    if step is not None and (alone or distributed.get_rank(group) == 0):
        recorder.committed(step, mode)


def _step(arguments: Arguments) -> int | None:
    """The newest complete step; where it is not known, the one that the checkpoint says."""
    last = steps.last()
    return resume.entry(_content(arguments)) if last is None else last


def _content(arguments: Arguments) -> dict[Any, Any]:
    args, options = arguments
    content = args[0] if args else options.get("state_dict")
    return content if isinstance(content, dict) else {}


def _path(arguments: Arguments) -> object:
    _, options = arguments
    store = options.get("storage_reader") or options.get("storage_writer")
    return options.get("checkpoint_id") or getattr(store, "path", None)
