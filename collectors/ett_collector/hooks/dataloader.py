"""DataLoader: waits of the training loop for its next batch, in the thread that trains and in no worker.

Before the first step a wait is `data_warmup`, with the start of the workers; later ones are `ett.data_wait`. While no
gradients are kept it is an evaluation that reads (`evaluation.py`).
"""

from __future__ import annotations

from _thread import get_ident
from functools import wraps

from ett_collector.hooks import evaluation, session, steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ett_collector.hooks.watched import Watched

HOOK = "dataloader"
WARMUP = "data_warmup"


class _Warm:
    iterator = 0  # that has given a batch; another one may be what training reads from, so it is asked again


def watch_loaders(module: Any) -> None:
    """`torch.utils.data.dataloader`."""
    keeps_gradients = module.torch.is_grad_enabled
    loader, iterator = module.DataLoader, module._BaseDataLoaderIter  # noqa: SLF001
    loader.__iter__ = _waiting(loader.__iter__, keeps_gradients, takes=False)
    iterator.__next__ = _waiting(iterator.__next__, keeps_gradients, takes=True)


def _waiting(
    function: Callable[[Any], Any], keeps_gradients: Callable[[], bool], *, takes: bool
) -> Callable[[Any], Any]:
    @wraps(function)
    def called(self: Any) -> Any:
        recorder = session.live()
        if recorder is None or recorder.thread != get_ident() or recorder.says_waits:
            return function(self)
        try:
            trains = keeps_gradients()
            if not trains and takes:
                evaluation.begin(recorder, self)
        except Exception as error:  # noqa: BLE001 - the hook alone fails
            session.failed(HOOK, error)
            return function(self)
        if not trains:
            return _evaluated(function, self, recorder)
        evaluation.end(recorder)
        if not steps.have_begun() and not recorder.says_steps and id(self) != _Warm.iterator:
            return _warmed(function, self, recorder, takes=takes)
        if recorder.is_holding():
            return function(self)
        begun = recorder.wait_begins()
        try:
            return function(self)
        finally:
            recorder.close_wait(begun)

    return called


def _evaluated(function: Callable[[Any], Any], self: Any, recorder: Watched) -> Any:
    try:
        return function(self)
    except StopIteration:
        evaluation.end(recorder, self)
        raise


def _warmed(function: Callable[[Any], Any], self: Any, recorder: Watched, *, takes: bool) -> Any:
    opened = recorder.begin(WARMUP)
    try:
        result = function(self)
    except BaseException as error:
        if opened is not None:
            recorder.finish(opened, raised=error)
        raise
    if opened is not None:
        recorder.finish(opened)
    if takes:
        _begun(self, recorder)
    return result


def _begun(iterator: object, recorder: Watched) -> None:
    """The first batch is there: the first step begins."""
    try:
        _Warm.iterator = id(iterator)
        n = steps.expected(recorder)
        if n is not None:
            recorder.expect(n)
    except Exception as error:  # noqa: BLE001
        session.failed(HOOK, error)
