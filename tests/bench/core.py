"""The core's speed against the closest peer, in one run: `make bench` or `python tests/bench/core.py`.

Prints a table: a job of 1,000,000 step events with 10 restarts attributed (cold, and after one new step
window), memory, and the start-up burst of a 16,384-rank restart. Goals are ratios of the same run.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ett_collector.wire import Event
from fleet_ett.core.ledger import Books, attribute
from fleet_ett.core.steps import StepBatch

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000_000
T0 = 1_772_452_800 * SECOND
Items = list[Event | StepBatch]


def long_job(steps: int, restarts: int = 10, lose: int = 20) -> Items:
    """The peer's job on our wire: bulk step windows of one step each."""
    out: Items = []
    now, seq, step, each = T0, 0, 0, steps // (restarts + 1)

    def event(kind: str, attempt: str, start: int, end: int | None, rank: int | None, **body: object) -> None:
        nonlocal seq
        out.append(Event(kind, "n0", "i0", seq, 0, "j", attempt, rank, start, end, body))
        seq += 1

    for index in range(restarts + 1):
        attempt = f"a{index}"
        event("attempt_start", attempt, now, None, None, gpus=8)
        for phase, seconds in (("device_init", 10), ("model_build", 20), ("data_warmup", 5)):
            event("phase", attempt, now, now + seconds * SECOND, 0, phase=phase)
            now += seconds * SECOND
        n = each if index < restarts else steps - each * restarts
        k = np.arange(n, dtype=np.int64)
        start = now + k * SECOND
        out.append(StepBatch("j", attempt, 0, "n0", "i0", seq + k, step + k, step + k, start, start + SECOND))
        seq, step, now = seq + n, step + n, now + n * SECOND
        event("attempt_end", attempt, now, None, None, outcome="failed" if index < restarts else "completed")
        if index < restarts:
            now, step = now + 60 * SECOND, step - lose
    return out


def one_more(job: Items, nth: int) -> StepBatch:
    """The next step window of a job's last attempt."""
    last = [item for item in job if isinstance(item, StepBatch)][-1]
    seq, step = int(last.seq[-1]) + 10 + nth, int(last.last[-1]) + 1 + nth
    start = int(last.end[-1]) + nth * SECOND
    columns = [np.array([v], dtype=np.int64) for v in (seq, step, step, start, start + SECOND)]
    return StepBatch("j", last.attempt, 0, "n0", "i0", *columns)


def burst(nodes: int = 2048, ranks: int = 8, phases: int = 20) -> Items:
    """The start-up of one restart: every rank reports every phase, with a spread between ranks."""
    dice = random.Random(7)
    names = [
        "node_prolog",
        "image_pull",
        "mounts_and_secrets",
        "launcher_start",
        "rendezvous",
        "process_import",
    ]
    names += ["device_init", "process_group_init", "preproc_creation", "model_build", "sharding_plan"]
    names += ["plugin_init", "checkpoint_load", "data_warmup", "compile_cold", "kernel_autotune"]
    names = (names + [f"own_{i}" for i in range(phases)])[:phases]
    out: Items = []
    for n in range(nodes):
        node = f"n{n:04}"
        out.append(
            Event(
                "attempt_start", node, node, 0, 0, "j", "a", None, T0, None, {"gpus_by_node": {node: ranks}}
            )
        )
        seq = 1
        for rank in range(n * ranks, (n + 1) * ranks):
            at = T0 + dice.randrange(SECOND)
            for name in names:
                end = at + dice.randrange(SECOND, 5 * SECOND)
                out.append(Event("phase", node, node, seq, 0, "j", "a", rank, at, end, {"phase": name}))
                seq, at = seq + 1, end
    return out


def timed(work: Callable[[], object], repeats: int) -> float:
    """The median of several runs (s)."""
    took = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def ours(steps: int) -> dict[str, float]:
    """Cold, warm and memory of the core."""
    job = long_job(steps)
    cold = timed(lambda: attribute(job), 5)
    books = Books()
    books.add(job[:-1])  # the last attempt goes on
    books.ledger("j")
    taken = iter(range(1000))

    def warm_call() -> None:
        books.add([one_more(job, next(taken))])
        books.ledger("j")

    warm = timed(warm_call, 9)
    return {
        "cold_s": cold,
        "warm_s": warm,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measured(*command: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(what: str, figure: str, ratio: str, goal: str) -> None:
    print(f"| {what:<58} | {figure:>22} | {ratio:>12} | {goal:<14} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("core", "burst"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only == "core":
        print(json.dumps(ours(args.steps)))
        return
    if args.only == "burst":
        events = burst()
        print(json.dumps({"seconds": timed(lambda: attribute(events), 3), "events": len(events)}))
        return
    here = str(Path(__file__).resolve())
    print(f"measuring ml-goodput-measurement 0.2.3 on {args.steps:,} steps ...", flush=True)
    peer = measured(str(Path(here).with_name("peer.py")), str(args.steps))
    core = measured(here, "--only", "core", "--steps", str(args.steps))
    start = measured(here, "--only", "burst")
    row("what", "this / peer", "ratio", "goal")
    row("-" * 58, "-" * 22, "-" * 12, "-" * 14)
    cold, warm = peer["cold_s"] / core["cold_s"], peer["cold_s"] / core["warm_s"]
    name = f"job of {args.steps:,} steps, 10 restarts: attributed"
    row(name, f"{core['cold_s']:.3f} / {peer['cold_s']:.1f} s", f"1/{cold:.0f}", "1/50 or less")
    figure = f"{core['warm_s'] * 1e3:.2f} ms / {peer['cold_s']:.1f} s"
    row("one new step window on it, against the peer's whole job", figure, f"1/{warm:.0f}", "1/1000 or less")
    figure = f"{core['warm_s'] * 1e3:.2f} ms / {peer['warm_s']:.1f} s"
    row(
        "the same, against the peer's call after one new step",
        figure,
        f"1/{peer['warm_s'] / core['warm_s']:.0f}",
        "",
    )
    row("peak memory", f"{core['peak_mib']:.0f} / {peer['peak_mib']:.0f} MiB", "", "200 MiB")
    name = f"{start['events']:,.0f} start-up events of one restart (2,048 nodes)"
    row(name, f"{start['seconds']:.2f} s", "", "under 2 s")


if __name__ == "__main__":
    main()
