"""Hugging Face transformers: `Trainer(..., callbacks=[EttCallback()])`.

The Trainer tells its callbacks when a save, an evaluation or a load is over, but not when it began. So the callback
marks steps and checkpoints, and the Trainer's own methods are timed, for Trainers that have such a callback.

Samples consumed are counted in full batches (the last one of an epoch may be smaller) and travel with the
checkpoint, in `trainer_state.json`: an attempt with another batch size goes on where the last one stopped.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from transformers import Trainer, TrainerCallback

import ett_collector as ett
from ett_collector.integrations.training import TRAINING, Around, wrap

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Method = Callable[..., Any]

NAME = "EttCallback"
PREPARING, BUILDING = "plugin_init", "model_build"  # the Trainer's own, around whatever says more
# method -> the phase that it is, beside `train` and `get_batch_samples`
PHASES = {
    "_prepare_for_training": BUILDING,  # since transformers 5
    "_load_from_checkpoint": "checkpoint_load",
    "_load_optimizer_and_scheduler": "checkpoint_load",
    "_load_rng_state": "checkpoint_load",
    "_save_checkpoint": "checkpoint_save_block",
    "evaluate": "evaluation",
    "predict": "evaluation",
}


class EttCallback(TrainerCallback):
    """Records the training of one Trainer; begins to record when it is made."""

    def __init__(self) -> None:
        self.consumed: int | None = (
            0  # samples of the whole job so far; None where the checkpoint does not know
        )
        self.batch = 0  # samples of one step, all ranks together
        self.warm = False  # the first batch of this training has come
        TRAINING.start("transformers")
        wrap(Trainer, "__init__", _init)
        wrap(Trainer, "train", _train)
        wrap(Trainer, "get_batch_samples", _fetch)
        for name, phase in PHASES.items():
            wrap(Trainer, name, functools.partial(_timed, phase))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        """State and model are loaded, where there was something to load."""
        TRAINING.close(PREPARING)
        self.warm = False
        self.consumed = 0
        if state.global_step:
            kept = (_kept(state) or {}).get(NAME, {})
            self.consumed = kept.get("attributes", {}).get("consumed")
            ett.checkpoint_loaded(state.global_step, samples=self.consumed)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        """The batches of a step are there."""
        if not state.is_hyper_param_search:
            ett.step_begin(state.global_step + 1, samples=self.consumed)

    def on_step_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        """One optimizer step is complete."""
        if state.is_hyper_param_search:  # each trial begins at step 0
            return
        if self.consumed is not None:
            self.consumed += self.batch
        ett.step(state.global_step, samples=self.consumed)
        kept = _kept(state)
        if kept is not None and self.consumed is not None:
            kept[NAME] = {"args": {}, "attributes": {"consumed": self.consumed}}

    def on_save(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        """A checkpoint is written."""
        if state.is_world_process_zero and not state.is_hyper_param_search:
            ett.checkpoint_committed(state.global_step, samples=self.consumed, mode="sync")


def _kept(state: Any) -> dict[str, Any] | None:
    """What the checkpoint keeps for callbacks; None in an older transformers."""
    found = getattr(state, "stateful_callbacks", None)
    return found if isinstance(found, dict) else None


def _callback(trainer: Any) -> EttCallback | None:
    return next((one for one in trainer.callback_handler.callbacks if isinstance(one, EttCallback)), None)


def _init(original: Method) -> Method:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(isinstance(one, EttCallback) for one in kwargs.get("callbacks") or ()):
            with Around(PREPARING):
                original(self, *args, **kwargs)
        else:
            original(self, *args, **kwargs)

    return init


def _train(original: Method) -> Method:
    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _callback(self) is None:
            return original(self, *args, **kwargs)
        with TRAINING.running():
            TRAINING.open(PREPARING, Around(PREPARING))
            return original(self, *args, **kwargs)

    return train


def _fetch(original: Method) -> Method:
    @functools.wraps(original)
    def get_batch_samples(self: Any, *args: Any, **kwargs: Any) -> Any:
        callback = _callback(self)
        if callback is None:
            return original(self, *args, **kwargs)
        callback.batch = self.get_total_train_batch_size(self.args)
        first, callback.warm = not callback.warm, True
        with ett.phase("data_warmup") if first else ett.data_wait():
            return original(self, *args, **kwargs)

    return get_batch_samples


def _timed(phase: str, original: Method) -> Method:
    @functools.wraps(original)
    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _callback(self) is None or (phase == "checkpoint_load" and not any((*args, *kwargs.values()))):
            return original(self, *args, **kwargs)  # `load(None)`: there is no checkpoint
        with Around(phase) if phase == BUILDING else ett.phase(phase, step=self.state.global_step):
            return original(self, *args, **kwargs)

    return timed
