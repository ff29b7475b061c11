"""torchtitan: a handler of its structured logger, named in the environment of an unchanged `torchtitan.train`.

    TITAN_STRUCT_LOGGER_HANDLERS=ett_collector.integrations.torchtitan.handler

It works where `debug.enable_structured_logging` is on, as it is by default, and replaces torchtitan's own handler. To
keep its JSONL files, name both, with a comma between them:
`torchtitan.observability.structured_logger.jsonl_handler.register_jsonl_handler`.

A step is complete when its `optim` span ends. The `checkpoint_save` span is there in every step, whether it saves or
not, and does not know when an asynchronous save is durable: the checkpointer's `save` is asked instead.
"""

from __future__ import annotations

import functools
import logging
from time import time_ns
from typing import TYPE_CHECKING

from torchtitan.components.checkpointer import BaseCheckpointManager

import ett_collector as ett
from ett_collector.integrations.training import TEARDOWN, TRAINING, Around, wrap

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Method = Callable[..., Any]

# span -> phase
PHASES = {
    "torch_distributed_init": "process_group_init",
    "model_parallelism_init": "model_build",
    "Trainer.Config.build": "plugin_init",
    "eval": "evaluation",
}
BUILDS = {"DataLoader.Config.build": "preproc_creation", "Model.Config.build": "model_build"}  # by their ends
STEP, OPTIMIZER, FETCH, TEAR_DOWN = "step", "optim", "fetching_batch", "torch_distributed_teardown"


def handler(*, structured_logger: logging.Logger, rank: int, **_kwargs: Any) -> None:
    """Begin to record, and attach to the structured logger (torchtitan calls this once a process)."""
    TRAINING.start("torchtitan")
    wrap(BaseCheckpointManager, "save", functools.partial(_save, rank))
    wrap(BaseCheckpointManager, "load", _load)
    structured_logger.addHandler(SpanHandler())


class SpanHandler(logging.Handler):
    """Records what the structured logger tells; what it does not know it leaves alone."""

    loaded = False  # state was restored, and the first step will say which

    def __init__(self) -> None:
        super().__init__()
        self.stepped = 0  # wall ns of the end of the last step
        self.failed = False  # something was raised in this step
        self.first = True  # no batch has come yet

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record: a span's `_start`, `_error` or `_end`, or an instant."""
        name = str(getattr(record, "log_type_name", ""))
        span, _, what = name.rpartition("_")
        if name == "training_start":
            TRAINING.begin()
        elif what == "start":
            self._start(span, getattr(record, "step", None))
        elif what == "error":
            self.failed = True
        elif what == "end":
            self._end(span, getattr(record, "step", None))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Training does not hear of it."""

    def _start(self, span: str, step: int | None) -> None:
        if span == STEP and step is not None:
            self.failed = False
            if SpanHandler.loaded:
                SpanHandler.loaded = False
                ett.checkpoint_loaded(step - 1)
            if not self.first:
                ett.step_begin(step)
        elif span == FETCH:
            TRAINING.open(FETCH, ett.phase("data_warmup") if self.first else ett.data_wait())
        elif span == TEAR_DOWN:
            if self.stepped:  # rank 0 has slept since, for the others
                ett.current().span(TEARDOWN, self.stepped, time_ns())
            TRAINING.done()
        elif (phase := _phase(span)) is not None:
            TRAINING.open(span, Around(phase) if step is None else ett.phase(phase, step=step))

    def _end(self, span: str, step: int | None) -> None:
        if span == FETCH and self.first and step is not None:
            self.first = False
            TRAINING.close(FETCH)
            ett.step_begin(step)
        elif span == OPTIMIZER and step is not None and not self.failed:
            ett.step(step)
        elif span == STEP:
            self.stepped = time_ns()
        else:
            TRAINING.close(span)


def _phase(span: str) -> str | None:
    found = PHASES.get(span)
    return found or next((phase for end, phase in BUILDS.items() if span.endswith(end)), None)


def _save(rank: int, original: Method) -> Method:
    @functools.wraps(original)
    def save(self: Any, curr_step: int, last_step: bool = False) -> Any:  # noqa: FBT001, FBT002 - torchtitan's
        due = getattr(self, "_should_save", None)
        if not self.enable or (due is not None and not due(curr_step, last_step)):
            return original(self, curr_step, last_step)
        with ett.phase("checkpoint_save_block", step=curr_step):
            saved = original(self, curr_step, last_step)
        if saved:
            _commit(self.save_future, curr_step, rank)
        return saved

    return save


def _commit(future: Any, step: int, rank: int) -> None:
    """The checkpoint is durable now, or once the future of its asynchronous save is done."""
    if future is None:
        if rank == 0:
            ett.checkpoint_committed(step, mode="sync")
        return
    writing = ett.phase("checkpoint_save_async", overlapped=True, step=step)
    writing.__enter__()

    def written(done: Any) -> None:
        writing.__exit__(None, None, None)
        if rank == 0 and not done.cancelled() and done.exception() is None:
            ett.checkpoint_committed(step, mode="async")

    future.add_done_callback(written)


def _load(original: Method) -> Method:
    @functools.wraps(original)
    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ett.phase("checkpoint_load"):
            SpanHandler.loaded = original(self, *args, **kwargs)
        return SpanHandler.loaded

    return load
