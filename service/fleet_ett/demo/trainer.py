"""One rank of the demo's training: an ordinary data-parallel loop, told by the recorder as a user would.

It also keeps a log of its own (`steps.rank<r>.jsonl`: attempt, step, end in ns, loss), which the launcher
watches and the tests compare the books with.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import ett_collector as ett
from fleet_ett.demo import checkpoints, model
from fleet_ett.demo.peers import CollectiveTimeout, Peer, PeerLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.demo.model import Batch, Parameters

SEED = 7
RANKS = 2
SAMPLES = 2048  # of one micro-batch of one rank
MICRO_BATCHES = 5
SAVE_EVERY = 40  # steps
EXIT_FAILED = 1


def main() -> int:
    """Train from the newest checkpoint to the last step; 1 where the other rank is lost."""
    folder = Path(os.environ["DEMO_FOLDER"])
    last_step = int(os.environ["DEMO_STEPS"])
    rank = int(os.environ["RANK"])
    ett.start(team="ads", model="click-mlp", framework="numpy", cluster="demo", name="click model, two ranks")
    (folder / f"trainer.rank{rank}.pid").write_text(str(os.getpid()))
    try:
        with ett.phase("process_group_init"):
            peer = Peer(rank, int(os.environ["DEMO_PORT"]), float(os.environ["DEMO_TIMEOUT_S"]))
            peer.barrier("the first barrier")
        train(folder, rank, peer, last_step)
    except (PeerLost, CollectiveTimeout) as error:
        ett.end("failed", error=f"{type(error).__name__}: {error}", exit_code=EXIT_FAILED)
        print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    ett.end()
    return 0


def train(folder: Path, rank: int, peer: Peer, last_step: int) -> None:
    """The loop, from the newest checkpoint on."""
    with ett.phase("model_build"):
        parameters = model.build(SEED)
    with ett.phase("checkpoint_load"):
        found = checkpoints.load_newest(folder)
        peer.barrier("the checkpoint")
    step = 0
    if found is not None:
        step, parameters = found
        ett.checkpoint_loaded(step, samples=consumed(step))
    with ett.phase("data_warmup"):
        batches = batches_from(rank, step + 1)
        first = next(batches)
    ett.step_begin(step + 1, samples=consumed(step))
    with (folder / f"steps.rank{rank}.jsonl").open("a", encoding="utf-8", buffering=1) as log:
        while step < last_step:
            step += 1
            read_side_table(folder, rank, step)
            with ett.data_wait():
                batch = first or next(batches)
            first = []
            loss = train_step(parameters, batch, peer, step)
            ett.step(step, samples=consumed(step))
            attempt = os.environ["ETT_ATTEMPT"]
            log.write(
                json.dumps({"attempt": attempt, "step": step, "end": time.time_ns(), "loss": loss}) + "\n"
            )
            if step % SAVE_EVERY == 0:
                save(folder, rank, step, parameters, peer)
    with ett.phase("evaluation"):
        evaluate(parameters, peer)
    with ett.phase("publish_on_accelerator"):
        if rank == 0:
            checkpoints.save(folder, last_step, parameters)
        peer.barrier("publishing")


def consumed(step: int) -> int:
    """Samples that the whole job has consumed after a step."""
    return step * RANKS * MICRO_BATCHES * SAMPLES


def batches_from(rank: int, step: int) -> Iterator[list[Batch]]:
    """The micro-batches of each step, from a step on."""
    while True:
        yield [model.clicks(SEED, rank, step * MICRO_BATCHES + i, SAMPLES) for i in range(MICRO_BATCHES)]
        step += 1


def train_step(parameters: Parameters, batch: list[Batch], peer: Peer, step: int) -> float:
    """One optimizer step of both ranks; the mean loss."""
    found = [model.gradients(parameters, one) for one in batch]
    stacked = np.stack([model.pack(gradient, loss) for loss, gradient in found])
    total = stacked.mean(axis=0, dtype=np.float32)
    mean, loss = model.unpack(peer.mean(total, f"step {step}"), parameters)
    model.update(parameters, mean)
    return loss


def save(folder: Path, rank: int, step: int, parameters: Parameters, peer: Peer) -> None:
    """Rank 0 writes; both go on when it is durable."""
    with ett.phase("checkpoint_save_block", step=step):
        size = checkpoints.save(folder, step, parameters) if rank == 0 else 0
        peer.barrier(f"the checkpoint of step {step}")
    if rank == 0:
        ett.checkpoint_committed(step, samples=consumed(step), mode="sync", size=size)


def evaluate(parameters: Parameters, peer: Peer) -> None:
    """The loss on samples that were never trained on."""
    loss, gradient = model.gradients(parameters, model.clicks(SEED, RANKS, 0, 8 * SAMPLES))
    peer.mean(model.pack(gradient, loss), "the evaluation")


def read_side_table(folder: Path, rank: int, step: int) -> None:
    """A table on shared storage that a step reads, if there is one: here the demo can make a rank hang."""
    path = folder / f"side-table.rank{rank}.step{step}"
    if path.exists():
        path.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
