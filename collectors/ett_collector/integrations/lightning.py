"""Lightning: `Trainer(callbacks=[EttCallback()])`, of `lightning.pytorch` or of `pytorch_lightning`.

Steps are the Trainer's `global_step`, which counts optimizer steps; with several optimizers in one batch the first
of them gets the batch's time. What no callback is told (a fetch, a save from its beginning, a restore) is timed at
the Trainer's own methods. Samples are counted where the data loader has a batch size, and travel with the checkpoint.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

import ett_collector as ett
from ett_collector.integrations.training import TRAINING, Around, wrap

if TYPE_CHECKING or "pytorch_lightning" not in sys.modules or "lightning.pytorch" in sys.modules:
    try:
        from lightning.pytorch import Callback, Trainer
    except ImportError:
        from pytorch_lightning import Callback, Trainer
else:  # the older name of the same, and the one that this process uses
    from pytorch_lightning import Callback, Trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Method = Callable[..., Any]

PREPARING = "plugin_init"
EVALUATION = "evaluation"
FETCH = ".train_dataloader_next"  # how the action is called for the Trainer's profiler


class EttCallback(Callback):
    """Records the training of one Trainer; begins to record when it is made."""

    def __init__(self) -> None:
        self.consumed: int | None = 0  # samples of the whole job so far; None where nobody knows
        self.marked = self.begun = 0  # the last step that was marked, that was said to begin
        self.loaded = False  # state was restored from a checkpoint
        self.warm = False  # the first batch of this training has come
        TRAINING.start("lightning")
        wrap(Trainer, "__init__", _init)
        wrap(Trainer, "fit", _fit)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of this callback."""
        return {"consumed": self.consumed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What a checkpoint kept."""
        self.consumed = state_dict.get("consumed")

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """The Trainer's parts are there, and nothing is loaded yet."""
        if stage != "fit":
            return
        TRAINING.start("lightning")  # a process that was spawned
        self.loaded = self.warm = False
        wrap(trainer, "save_checkpoint", functools.partial(_save, self, trainer))
        wrap(trainer.strategy, "load_checkpoint", functools.partial(_load, self))
        connector = getattr(trainer, "_checkpoint_connector", None)
        for name in ("_restore_modules_and_callbacks", "restore_training_state"):
            wrap(connector, name, functools.partial(_restore, trainer))
        wrap(trainer.profiler, "start", functools.partial(_fetch_begins, self))
        wrap(trainer.profiler, "stop", _fetch_ends)
        if _later(trainer):
            wrap(
                trainer.strategy.checkpoint_io.checkpoint_io,
                "save_checkpoint",
                functools.partial(_write, self),
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """All is restored, where there was something to restore."""
        TRAINING.close(PREPARING)
        self.marked = self.begun = trainer.global_step
        if self.loaded:
            ett.checkpoint_loaded(self.marked, samples=self.consumed)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """A batch is there: the step begins, or goes on where gradients are accumulated."""
        if self.begun != self.marked + 1:
            self.begun = self.marked + 1
            ett.step_begin(self.begun, samples=self.consumed)

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,  # noqa: ARG002
        outputs: Any,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """A batch is done, and with it a step, where its optimizer has stepped."""
        size = _samples(trainer)
        self.consumed = None if size is None or self.consumed is None else self.consumed + size
        for n in range(self.marked + 1, trainer.global_step + 1):
            ett.step(n, samples=self.consumed)
        self.marked = trainer.global_step

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Validation, also the one before training."""
        TRAINING.open(EVALUATION, ett.phase(EVALUATION, step=trainer.global_step))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Validation is over; a checkpoint that it decides on is saved after this."""
        TRAINING.close(EVALUATION)

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Training ends by an exception; Lightning makes an exit status of an interrupt, and 0 of a SIGTERM."""
        if type(exception).__name__ == "SIGTERMException":  # who sent it, and why, is not known here
            TRAINING.stopped(exception, "failed", "terminated by SIGTERM")
        else:
            TRAINING.stopped(exception)


def _callbacks(trainer: Any) -> list[EttCallback]:
    return [one for one in trainer.callbacks if isinstance(one, EttCallback)]


def _later(trainer: Any) -> bool:
    """Whether a save returns before it is written (`AsyncCheckpointIO` around another one)."""
    io = getattr(trainer.strategy, "checkpoint_io", None)
    return "Async" in type(io).__name__ and getattr(io, "checkpoint_io", None) is not None


def _samples(trainer: Any) -> int | None:
    """Samples of one batch on all ranks; None where the loader has no batch size."""
    size = getattr(trainer.train_dataloader, "batch_size", None)
    replicas = (getattr(trainer.strategy, "distributed_sampler_kwargs", None) or {}).get("num_replicas", 1)
    return size * replicas if isinstance(size, int) else None


def _init(original: Method) -> Method:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        with Around(PREPARING):
            original(self, *args, **kwargs)

    return init


def _fit(original: Method) -> Method:
    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _callbacks(self):
            return original(self, *args, **kwargs)
        with TRAINING.running():
            TRAINING.open(PREPARING, Around(PREPARING))
            return original(self, *args, **kwargs)

    return fit


def _save(callback: EttCallback, trainer: Any, original: Method) -> Method:
    @functools.wraps(original)
    def save_checkpoint(filepath: Any, *args: Any, **kwargs: Any) -> None:
        step = trainer.global_step
        weights_only = args[0] if args else kwargs.get("weights_only")
        with ett.phase("checkpoint_save_block", step=step):
            original(filepath, *args, **kwargs)
        if step and trainer.is_global_zero and not weights_only and not _later(trainer):
            ett.checkpoint_committed(step, samples=callback.consumed, mode="sync")

    return save_checkpoint


def _write(callback: EttCallback, original: Method) -> Method:
    """What an asynchronous save writes, in a thread of its own."""

    @functools.wraps(original)
    def save_checkpoint(checkpoint: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        step = checkpoint.get("global_step", 0)
        samples = checkpoint.get("callbacks", {}).get(callback.state_key, {}).get("consumed")
        with ett.phase("checkpoint_save_async", overlapped=True, step=step):
            original(checkpoint, *args, **kwargs)
        if checkpoint.get("optimizer_states") is not None:
            ett.checkpoint_committed(step, samples=samples, mode="async")

    return save_checkpoint


def _load(callback: EttCallback, original: Method) -> Method:
    @functools.wraps(original)
    def load_checkpoint(*args: Any, **kwargs: Any) -> Any:
        with ett.phase("checkpoint_load"):
            found = original(*args, **kwargs)
        callback.loaded = True
        if callback.state_key not in (found.get("callbacks") or {}):
            callback.consumed = None  # saved before this callback was there
        return found

    return load_checkpoint


def _restore(trainer: Any, original: Method) -> Method:
    @functools.wraps(original)
    def restore(*args: Any, **kwargs: Any) -> Any:
        if not trainer.ckpt_path:
            return original(*args, **kwargs)
        with ett.phase("checkpoint_load"):
            return original(*args, **kwargs)

    return restore


def _fetch_begins(callback: EttCallback, original: Method) -> Method:
    @functools.wraps(original)
    def start(action_name: str) -> None:
        if action_name.endswith(FETCH):
            first, callback.warm = not callback.warm, True
            TRAINING.open(FETCH, ett.phase("data_warmup") if first else ett.data_wait())
        original(action_name)

    return start


def _fetch_ends(original: Method) -> Method:
    @functools.wraps(original)
    def stop(action_name: str) -> None:
        original(action_name)
        if action_name.endswith(FETCH):
            TRAINING.close(FETCH)

    return stop
