"""A real PyTorch job without a line of ours: torchrun, gloo, torch.compile, a DataLoader with workers, DCP.

Worker 1 kills itself with SIGKILL once. What it does is measured with clocks of its own (`measured.rank<r>.jsonl`).
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.utils.data import DataLoader, Dataset

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS, SAVE_EVERY, KILL_AFTER, EVALUATE_AFTER = 60, 20, 47, 30
BATCH, WIDTH, SAMPLES = 16, 16, 640  # an epoch of 40 steps
FOLDER = Path(os.environ["TEST_FOLDER"])
RANK, ATTEMPT = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])


class Samples(Dataset):
    """Rows whose sum is above zero or not."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))
        return row, (row.sum() > 0).float()


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Keep when something began and how long it took."""
    start, mono = time.time_ns(), time.monotonic_ns()
    yield
    line = {"attempt": ATTEMPT, "rank": RANK, "what": what, "start": start, "ns": time.monotonic_ns() - mono}
    with (FOLDER / f"measured.rank{RANK}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    with measured("process_group_init"):
        dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = load(model, optimizer)
    compiled = torch.compile(model)
    while step < STEPS:
        for rows, labels in DataLoader(Samples(SAMPLES), batch_size=BATCH, num_workers=1):
            if step == STEPS:
                break
            train(compiled, optimizer, rows, labels)
            step += 1
            if step % SAVE_EVERY == 0:
                save(model, optimizer, step)
            if step == EVALUATE_AFTER:
                evaluate(model)
            once = FOLDER / "killed"
            if RANK == 1 and step == KILL_AFTER and not once.exists():
                once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, rows: torch.Tensor, labels: torch.Tensor
) -> None:
    """One step on the mean gradient of both ranks, of at least 20 ms."""
    time.sleep(0.02)
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(model(rows).squeeze(1), labels).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Every other checkpoint is written beside the next steps, and waited for here: the test kills soon after."""
    parts = get_state_dict(model, optimizer)
    state = {"model": parts[0], "optimizer": parts[1], "step": step}
    where = FOLDER / f"step-{step:06d}"
    if step == 2 * SAVE_EVERY:
        with measured("async_save"):
            saving = dcp.async_save(state, checkpoint_id=where)
        saving.result()
        dist.barrier()
    else:
        with measured("save"):
            dcp.save(state, checkpoint_id=where)


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step of the newest checkpoint, its state loaded; 0 where there is none."""
    found = sorted(FOLDER.glob("step-*"))
    if not found:
        return 0
    parts = get_state_dict(model, optimizer)
    state = {"model": parts[0], "optimizer": parts[1], "step": 0}
    with measured("load"):
        dcp.load(state, checkpoint_id=found[-1])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def evaluate(model: nn.Module) -> None:
    """Batches that nobody trains on."""
    with measured("evaluation"), torch.no_grad():
        for rows, _ in DataLoader(Samples(BATCH * 4), batch_size=BATCH):
            model(rows)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
