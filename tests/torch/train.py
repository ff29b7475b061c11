"""A real PyTorch job for torchrun: a small DLRM, compiled, two gloo ranks, distributed checkpoints.

One worker kills itself with SIGKILL once, between two checkpoints. The script measures its own phases and
steps with clocks of its own (`measured.rank<r>.jsonl`), for the test to compare the books with.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import ett_collector as ett
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS, SAVE_EVERY, KILL_AFTER = 65, 20, 47  # no save after the last step
BATCH, TABLES, ROWS, WIDTH, DENSE = 256, 4, 1000, 16, 13
SEED = 7


class Dlrm(nn.Module):
    """Embedding tables, a bottom and a top MLP, and the dot products between their vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(DENSE, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(nn.Linear(WIDTH + pairs, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """Scores of (batch, DENSE) floats and (batch, TABLES) row numbers."""
        below = self.bottom(dense)
        vectors = torch.stack([below, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = torch.triu_indices(TABLES + 1, TABLES + 1, offset=1)
        return self.top(torch.cat([below, dots[:, rows, columns]], dim=1)).squeeze(1)


class Measured:
    """The script's own account: one line a phase or step, kept over a SIGKILL."""

    def __init__(self, folder: Path, rank: int, attempt: int) -> None:
        self.file = (folder / f"measured.rank{rank}.jsonl").open("a", encoding="utf-8", buffering=1)
        self.attempt = attempt

    def write(self, **fields: Any) -> None:
        """Keep a line."""
        self.file.write(json.dumps({"attempt": self.attempt, **fields}) + "\n")

    @contextmanager
    def phase(self, name: str, **fields: Any) -> Iterator[None]:
        """Report a phase to the recorder, and measure it without it."""
        before = time.monotonic_ns()
        with ett.phase(name, **fields):
            entered = time.monotonic_ns()
            yield
            leaving = time.monotonic_ns()
        self.write(phase=name, begin=(before, entered), leaving=leaving, left=time.monotonic_ns())


def main() -> None:
    """Train from the newest checkpoint to the last step."""
    folder = Path(os.environ["TEST_FOLDER"])
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    ett.start(team="ads", model="dlrm", framework="pytorch")
    measured = Measured(folder, rank, attempt)
    with measured.phase("process_group_init"):
        dist.init_process_group("gloo")
    torch.manual_seed(SEED)
    with measured.phase("model_build"):
        model = Dlrm()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = load(folder, model, measured)
    compiled = compile_model(model, measured)
    ett.step_begin(step + 1, samples=consumed(step))
    measured.write(begun=time.monotonic_ns())
    while step < STEPS:
        step += 1
        with ett.data_wait():
            dense, sparse, clicked = batch_of(rank, step)
        loss = train_step(compiled, optimizer, dense, sparse, clicked)
        before = time.monotonic_ns()
        ett.step(step, samples=consumed(step))
        measured.write(step=step, marked=(before, time.monotonic_ns()), loss=loss)
        if step % SAVE_EVERY == 0:
            save(folder, model, step, measured)
        once = folder / "killed"
        if rank == 1 and step == KILL_AFTER and not once.exists():
            once.write_text(str(time.time_ns()))
            os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    ett.end()
    dist.destroy_process_group()


def consumed(step: int) -> int:
    """Samples of both ranks after a step."""
    return step * BATCH * 2


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The samples of a rank's step: the same whenever it is trained."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    dense = torch.randn(BATCH, DENSE, generator=random)
    sparse = torch.randint(ROWS, (BATCH, TABLES), generator=random)
    return dense, sparse, (dense[:, 0] + dense[:, 1] > 0).float()


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dense: torch.Tensor,
    sparse: torch.Tensor,
    clicked: torch.Tensor,
) -> float:
    """One optimizer step on the mean gradient of both ranks; this rank's loss."""
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(model(dense, sparse), clicked)
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
    return float(loss.detach())


def compile_model(model: nn.Module, measured: Measured) -> nn.Module:
    """Compile forward and backward by running them once; a later attempt finds its graphs in the cache."""
    key = hashlib.sha256(repr((TABLES, ROWS, WIDTH, DENSE, torch.__version__)).encode()).hexdigest()
    name = "compile_cold" if measured.attempt == 0 else "compile_cache_restore"
    with measured.phase(name, work_key=f"sha256:{key}"):
        compiled = torch.compile(model)
        dense, sparse, clicked = batch_of(0, 0)
        nn.functional.binary_cross_entropy_with_logits(compiled(dense, sparse), clicked).backward()
    return compiled


def load(folder: Path, model: nn.Module, measured: Measured) -> int:
    """The step of the newest checkpoint, its state loaded; 0 where there is none."""
    found = sorted(folder.glob("step-*"))
    if not found:
        return 0
    state = {"model": model.state_dict(), "step": 0}
    with measured.phase("checkpoint_load"):
        dcp.load(state, checkpoint_id=found[-1])
        model.load_state_dict(state["model"])
        dist.barrier()
    step = int(state["step"])
    ett.checkpoint_loaded(step, samples=consumed(step))
    measured.write(loaded=step)
    return step


def save(folder: Path, model: nn.Module, step: int, measured: Measured) -> None:
    """Save on both ranks; the rename of the whole commits it."""
    beside = folder / f"writing-{step:06d}"
    with measured.phase("checkpoint_save_block", step=step):
        dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=beside)
        if dist.get_rank() == 0:
            beside.rename(folder / f"step-{step:06d}")
        dist.barrier()
    if dist.get_rank() == 0:
        ett.checkpoint_committed(step, samples=consumed(step), mode="sync")


if __name__ == "__main__":
    main()
