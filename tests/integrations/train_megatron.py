"""A loop as Megatron-LM's `training.py` has it, on a CPU: its timers, batch calculator and asynchronous saves.

Megatron-LM itself needs GPUs and is no package; megatron-core is, and what is called here of it is the real thing.
`torch.cuda` is asked to synchronize and to name a device, so it answers for the CPU. SIGKILL comes once, in a step.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue, AsyncRequest
from megatron.core.num_microbatches_calculator import (
    get_current_global_batch_size,
    init_num_microbatches_calculator,
)
from megatron.core.timers import Timers

import torch
from ett_collector.integrations.megatron import watch

STEPS, SAVE_EVERY, KILL_AFTER, BATCH = 12, 4, 7, 8
FOLDER = Path(os.environ["TEST_FOLDER"])
ARGS = SimpleNamespace(consumed_train_samples=0, async_save="async" in sys.argv, curr_iteration=0)
TIMERS = Timers(log_level=0, log_option="minmax")
QUEUE = AsyncCallsQueue()


def get_args() -> SimpleNamespace:
    return ARGS


def pretrain() -> None:
    """Set up, load, train."""
    TIMERS("model-and-optimizer-setup", log_level=0).start(barrier=True)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    TIMERS("model-and-optimizer-setup").stop()
    TIMERS("load-checkpoint", log_level=0).start(barrier=True)
    iteration, _ = load_checkpoint(model, optimizer, None)
    TIMERS("load-checkpoint").stop(barrier=True)
    train(iteration, model, optimizer)


def train(iteration: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Steps, evaluations and saves."""
    TIMERS("interval-time", log_level=0).start(barrier=True)
    while iteration < STEPS:
        QUEUE.maybe_finalize_async_calls(blocking=False)
        ARGS.curr_iteration = iteration
        train_step(forward_step, model, optimizer)
        iteration += 1
        ARGS.consumed_train_samples += get_current_global_batch_size()
        if iteration % SAVE_EVERY == 0:
            TIMERS("eval-time", log_level=0).start(barrier=True)
            forward_step(model)
            TIMERS("eval-time").elapsed()
            TIMERS("eval-time").stop()
            TIMERS("save-checkpoint", log_level=0).start(barrier=False)
            save_checkpoint(iteration, model, optimizer, None, 0)
            TIMERS("save-checkpoint").stop(barrier=False)
    TIMERS("interval-time").stop()
    QUEUE.maybe_finalize_async_calls(blocking=True)


def forward_step(model: torch.nn.Module) -> torch.Tensor:
    """The loss of the next batch."""
    TIMERS("batch-generator", log_level=2).start()
    batch = torch.randn(BATCH, 64)
    TIMERS("batch-generator").stop()
    return model(batch).square().mean()


def train_step(forward: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One iteration."""
    optimizer.zero_grad()
    forward(model).backward()
    once = FOLDER / "killed"
    if ARGS.curr_iteration == KILL_AFTER and not once.exists():
        QUEUE.maybe_finalize_async_calls(blocking=True)
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()


def save_checkpoint(iteration: int, model: Any, optimizer: Any, _scheduler: Any, _flops: int) -> None:
    """Write the state, and then the file that says which state is the last."""
    state = {"iteration": iteration, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state["samples"] = ARGS.consumed_train_samples

    def finalize() -> None:
        (FOLDER / "latest").write_text(str(iteration))

    path = FOLDER / f"iter_{iteration:07d}.pt"
    request = AsyncRequest(torch.save, (state, path), [finalize])
    if ARGS.async_save:
        QUEUE.schedule_async_request(request)
    else:
        request.execute_sync()


def load_checkpoint(model: Any, optimizer: Any, _scheduler: Any) -> tuple[int, int]:
    """(iteration, floating point operations) of the last checkpoint, zeros where there is none."""
    latest = FOLDER / "latest"
    if not latest.exists():
        return 0, 0
    state = torch.load(FOLDER / f"iter_{int(latest.read_text()):07d}.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    ARGS.consumed_train_samples = state["samples"]
    return state["iteration"], 0


if __name__ == "__main__":
    torch.cuda.synchronize = lambda: None
    torch.cuda.current_device = lambda: "cpu"
    watch(sys.modules["__main__"])
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store-{os.getpid()}", rank=0, world_size=1)
    init_num_microbatches_calculator(0, None, BATCH, BATCH, 1)
    pretrain()
    dist.destroy_process_group()
