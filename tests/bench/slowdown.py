"""How much slower a real PyTorch loop is for its hooks: `make bench-slowdown`.

A script without a line of ours runs under `ett-run` and takes turns of a few steps each with its hooks and without
them (what they had put in place is put back; the step after that is not timed), so that both have the same process,
memory and machine. Prints how
much longer a step is with them, by the median difference of neighbouring turns, with the range that 95% of resampled
turns give: on the wall, and in processor time of the thread that trains. Hooks do nothing but work in that thread, so
the goal is for the latter, which stays the same on a machine that does other things besides. Then the same for a model
so small that nothing hides them, and what a start of Python costs more that has nothing to do with training.
Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Times = tuple[float, float]  # seconds on the wall, of the processor

COLLECTORS = Path(__file__).parents[2] / "collectors"
GOAL_PCT = 0.5
RESAMPLED = 500
OFF_US = 100  # of a Python's start, with ETT_AUTO not set


def child(width: int, turns: int, steps: int) -> None:
    """Train, and print seconds a step of each turn: (with hooks, without), each on the wall and of the processor."""
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    import torch
    from torch import nn

    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("gloo", rank=0, world_size=1)
    model = nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    samples = TensorDataset(torch.randn(8192, width), torch.randn(8192, 1))

    def batches() -> Iterator[list[torch.Tensor]]:
        while True:
            yield from DataLoader(samples, batch_size=64)

    batch = batches()

    def train(steps: int) -> tuple[float, float]:
        begin, worked = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            rows, wanted = next(batch)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(rows), wanted).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
        return (time.perf_counter() - begin) / steps, (time.thread_time() - worked) / steps

    train(10)
    hooks = Hooks(DataLoader, dist)
    gc.collect()
    gc.disable()  # falls into this turn or that one
    found = []
    for turn in range(turns):
        took = {}
        for on in (turn % 2 == 0, turn % 2 == 1):
            hooks.put(on=on)
            train(1)  # the interpreter finds its way again
            took[on] = train(steps)
        found.append((took[True], took[False]))
    dist.destroy_process_group()
    print(json.dumps(found))


class Hooks:
    """What the hooks have put in place in this process, to be taken away and put back."""

    def __init__(self, loader: Any, dist: Any) -> None:
        from torch.optim import optimizer
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._given = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
        self._kept = [dict(one) for one in self._given]
        places = ((loader, "__iter__"), (_BaseDataLoaderIter, "__next__"), (dist, "all_reduce"))
        self._places = [(owner, name, getattr(owner, name)) for owner, name in places]
        assert any(self._kept), "no hook of ours"

    def put(self, *, on: bool) -> None:
        """Put them in place or take them away."""
        for owner, name, wrapped in self._places:
            setattr(owner, name, wrapped if on else wrapped.__wrapped__)
        for given, kept in zip(self._given, self._kept, strict=True):
            given.clear()
            given.update(kept if on else {})


def measure(turns: int, steps: int, width: int) -> list[tuple[Times, Times]]:
    """(with hooks, without) of each turn, in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--child", "--width", str(width), "--turns", str(turns), "--steps", str(steps)]
        script = [
            sys.executable,
            "-m",
            "ett_collector.run",
            "--job",
            "bench",
            "--",
            sys.executable,
            __file__,
            *options,
        ]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
        environ |= {"PYTHONPATH": str(COLLECTORS), "ETT_SPOOL_DIR": folder, "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(script, env=environ, text=True, stdout=subprocess.PIPE, check=True)
        assert list(Path(folder).glob("trainer-*")), "nothing was recorded"
        return [(tuple(on), tuple(off)) for on, off in json.loads(done.stdout)]


def more(pairs: Sequence[tuple[Times, Times]], clock: int) -> float:
    """How much longer a step is with hooks (%), by the wall (0) or the processor (1)."""
    slower = statistics.median(on[clock] - off[clock] for on, off in pairs)
    return 100 * slower / statistics.median(off[clock] for _, off in pairs)


def told(pairs: Sequence[tuple[Times, Times]], clock: int) -> str:
    """The same with its range."""
    chance = random.Random(1)
    guessed = sorted(more(chance.choices(pairs, k=len(pairs)), clock) for _ in range(RESAMPLED))
    low, high = guessed[RESAMPLED * 25 // 1000], guessed[RESAMPLED * 975 // 1000]
    return f"{more(pairs, clock):+.2f}% (95%: {low:+.2f}% to {high:+.2f}%)"


def start_us(runs: int) -> dict[str, float]:
    """What a start of Python costs more than `-S -c pass` does with the line of our .pth file, off and on (us)."""
    line = (COLLECTORS / "ett_collector" / "hooks" / "bootstrap" / "ett-auto.pth").read_text()
    timed = f"import os, time\nb = time.perf_counter_ns()\nexec({line!r})\nprint(time.perf_counter_ns() - b)"
    found: dict[str, float] = {}
    for name, value in (("off", "0"), ("on, no framework", "1")):
        environ = os.environ | {"PYTHONPATH": str(COLLECTORS), "ETT_AUTO": value}
        took = [
            int(
                subprocess.run(
                    [sys.executable, "-c", timed], env=environ, capture_output=True, check=True
                ).stdout
            )
            for _ in range(runs)
        ]
        found[name] = statistics.median(took) / 1000
    return found


def main() -> int:
    """Print the ratio; 1 where a goal is missed for certain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--turns", type=int, default=500, help="pairs of turns of each process")
    parser.add_argument("--steps", type=int, default=2, help="of each turn")
    parser.add_argument("--width", type=int, default=1024, help="of the model")
    options = parser.parse_args()
    if options.child:
        child(options.width, options.turns, options.steps)
        return 0
    found = [measure(options.turns, options.steps, options.width) for _ in range(options.processes)]
    pairs = [one for each in found for one in each]
    step = statistics.median(off[0] for _, off in pairs)
    small = measure(10 * options.turns, options.steps, 4)
    us = 1e6 * statistics.median(on[1] - off[1] for on, off in small)
    starts = start_us(15)
    print(f"a step without hooks: {1000 * step:.2f} ms ({len(pairs)} pairs of {options.steps} steps)")
    print(f"with hooks, by the processor: {told(pairs, 1)}, goal {GOAL_PCT:g}%")
    print(f"with hooks, on the wall: {told(pairs, 0)}")
    print(f"of a step of a tiny model: {us:.1f} us, {us / step / 1e4:.2f}% of the other's")
    for name, start in starts.items():
        goal = f", goal {OFF_US} us" if name == "off" else ""
        print(f"start of Python, ETT_AUTO {name}: {start:+.0f} us{goal}")
    return int(more(pairs, 1) > GOAL_PCT or starts["off"] > OFF_US)


if __name__ == "__main__":
    sys.exit(main())
