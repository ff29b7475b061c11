"""Megatron-style loops: `watch(megatron.training.training)`, before `pretrain(...)` is called.

Phases come from the timers (`megatron.core.timers`, whatever their log level), steps and checkpoints from the
functions that the loop calls by name: `train`, `train_step`, `save_checkpoint`, `load_checkpoint`. A step is one
iteration. Samples are those of `get_args().consumed_train_samples` and the current global batch size.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from megatron.core import num_microbatches_calculator
from megatron.core.timers import Timers

import ett_collector as ett
from ett_collector.integrations.training import TRAINING, Around, wrap

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Function = Callable[..., Any]

# timer -> phase
PHASES = {
    "model-and-optimizer-setup": "model_build",
    "train/valid/test-data-iterators-setup": "preproc_creation",
    "load-checkpoint": "checkpoint_load",
    "save-checkpoint": "checkpoint_save_block",
    "save-checkpoint-non-persistent": "checkpoint_save_block",
    "eval-time": "evaluation",
    "evaluate": "evaluation",
}
SETTING_UP = ("model_build", "preproc_creation")
BATCH = "batch-generator"  # the timer of a wait for input
QUEUES = (  # of asynchronous saves: Megatron's own, and the one of NVIDIA's resiliency extension
    "megatron.core.dist_checkpointing.strategies.async_utils",
    "nvidia_resiliency_ext.checkpointing.async_ckpt.core",
)


def watch(loop: Any, timers: Any = None) -> None:
    """Record a loop from now on.

    `loop`: the module whose functions it calls. `timers`: a Timers object, where it is not of megatron.core's class.
    """
    TRAINING.start("megatron")
    found = Loop(loop)
    wrap(Timers if timers is None else type(timers), "__call__", _call)
    for name in ("train", "train_step", "save_checkpoint", "load_checkpoint"):
        wrap(loop, name, getattr(found, name))
    for name in QUEUES:
        try:
            queue = importlib.import_module(name).AsyncCallsQueue
        except (ImportError, AttributeError):
            continue
        wrap(queue, "schedule_async_request", found.schedule)


class Loop:
    """Where a loop is: `done` iterations are complete, `saving` is the checkpoint that is being saved."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.done = 0
        self.saving: tuple[int, int | None] | None = None

    def train(self, original: Function) -> Function:
        """The function around all steps: what it raises is how training ended."""

        @functools.wraps(original)
        def train(*args: Any, **kwargs: Any) -> Any:
            with TRAINING.running():
                return original(*args, **kwargs)

        return train

    def train_step(self, original: Function) -> Function:
        """One iteration; newer loops say which, older ones keep it in their arguments."""

        @functools.wraps(original)
        def train_step(*args: Any, **kwargs: Any) -> Any:
            said = kwargs.get("iteration")
            if said is None:
                said = self._argument("curr_iteration")
            self.done = said if said is not None else self.done
            consumed, batch = self.consumed(), _batch()
            ett.step_begin(self.done + 1, samples=consumed)
            result = original(*args, **kwargs)
            self.done += 1
            ett.step(self.done, samples=None if consumed is None or batch is None else consumed + batch)
            return result

        return train_step

    def save_checkpoint(self, original: Function) -> Function:
        """A save: durable when it returns, or when what it has scheduled is finalized."""

        @functools.wraps(original)
        def save_checkpoint(iteration: int, *args: Any, **kwargs: Any) -> Any:
            self.saving = (iteration, self.consumed())
            with ett.phase("checkpoint_save_block", step=iteration):
                result = original(iteration, *args, **kwargs)
            if self.saving is not None:
                _commit(self.saving, "sync")
            self.saving = None
            return result

        return save_checkpoint

    def load_checkpoint(self, original: Function) -> Function:
        """A load, which returns the iteration first; 0 where there was nothing to load."""

        @functools.wraps(original)
        def load_checkpoint(*args: Any, **kwargs: Any) -> Any:
            with ett.phase("checkpoint_load"):
                result = original(*args, **kwargs)
            iteration = result[0] if isinstance(result, tuple) else result
            if isinstance(iteration, int) and iteration:
                self.done = iteration
                ett.checkpoint_loaded(iteration, samples=self.consumed())
            return result

        return load_checkpoint

    def schedule(self, original: Function) -> Function:
        """An asynchronous save is on its way: it counts once it is finalized on all ranks."""

        @functools.wraps(original)
        def schedule_async_request(queue: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if self.saving is not None and not request.is_frozen:
                saving, self.saving = self.saving, None
                writing = ett.phase("checkpoint_save_async", overlapped=True, step=saving[0])
                writing.__enter__()

                def finalized() -> None:
                    writing.__exit__(None, None, None)
                    _commit(saving, "async")

                request.add_finalize_fn(finalized)
            return original(queue, request, *args, **kwargs)

        return schedule_async_request

    def consumed(self) -> int | None:
        """Samples of the whole job so far; None in a loop that does not count them."""
        found = self._argument("consumed_train_samples")
        return found if isinstance(found, int) else None

    def _argument(self, name: str) -> Any:
        get_args = getattr(self._module, "get_args", None)
        return getattr(get_args(), name, None) if callable(get_args) else None


class Reported:
    """A timer whose time is a phase, or a wait for input; else as it was."""

    def __init__(self, timer: Any, name: str) -> None:
        self._timer = timer
        self._name = name

    def start(self, *args: Any, **kwargs: Any) -> None:
        """Start the timer (which may wait for other ranks first), then the phase."""
        self._timer.start(*args, **kwargs)
        phase = PHASES.get(self._name)
        if phase is None:
            TRAINING.open(self._name, ett.data_wait())
        else:
            TRAINING.open(self._name, Around(phase) if phase in SETTING_UP else ett.phase(phase))

    def stop(self, *args: Any, **kwargs: Any) -> None:
        """Stop the timer, then the phase."""
        self._timer.stop(*args, **kwargs)
        TRAINING.close(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timer, name)


def _call(original: Function) -> Function:
    @functools.wraps(original)
    def call(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        timer = original(self, name, *args, **kwargs)
        return Reported(timer, name) if name in PHASES or name == BATCH else timer

    return call


def _batch() -> int | None:
    """Samples of one iteration on all ranks; None where no calculator was made."""
    try:
        found = num_microbatches_calculator.get_current_global_batch_size()
    except AttributeError:
        return None
    return int(found)


def _commit(saved: tuple[int, int | None], mode: str) -> None:
    import torch.distributed as dist  # noqa: PLC0415 - whoever trains has imported it long ago

    if not dist.is_initialized() or dist.get_rank() == 0:
        ett.checkpoint_committed(saved[0], samples=saved[1], mode=mode)
