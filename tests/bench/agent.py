"""What an agent costs its node: 8 ranks at 10 steps a second each. `make bench-agent`.

Real trainer processes record a step, a wait for input and now and then a checkpoint; a real agent with its default
settings ships to a receiver that stores. Prints the agent's processor time and memory, and the bytes on the wire
beside JSON of the same events. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ett_collector.wire import to_wire
from tests.collectors.receiver import Receiver

ROOT = Path(__file__).parents[2]
CORE_PCT, RSS_MIB, WINDOW_BYTES = 1.0, 40.0, 40.0
WARM_S = 3.0  # the agent's own start is no part of what it costs all day
TRAINER = """
import sys, time
import ett_collector as ett
rank, per_s, ends_at = int(sys.argv[1]), float(sys.argv[2]), time.monotonic() + float(sys.argv[3])
ett.start("bench", attempt="a", rank=rank, world_size=8, gpus_on_node=8)
step = 0
ett.step_begin(0, samples=0)
while time.monotonic() < ends_at:
    with ett.data_wait(): time.sleep(0.1 / per_s)
    time.sleep(0.9 / per_s)
    ett.step(step, samples=4096 * (step + 1))
    step += 1
    if step % 100 == 0:
        with ett.phase("checkpoint_save_block", step=step): time.sleep(0.01)
        ett.checkpoint_committed(step, mode="async")
ett.end()
"""


def used_s(pid: int) -> float:
    """Processor time of a process so far (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """The most memory that a process has had (MiB)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps-per-s", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    receiver = Receiver()
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
        environ = kept | {"PYTHONPATH": str(ROOT / "collectors"), "ETT_SPOOL_DIR": folder}
        agent = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ett_collector.agent.main",
                "--url",
                receiver.url,
                "--node",
                "n",
                "--metrics",
                "127.0.0.1:0",
            ],
            env=environ,
            stderr=subprocess.DEVNULL,
        )
        length = str(options.seconds + WARM_S + 1)
        trainers = [
            subprocess.Popen(
                [sys.executable, "-c", TRAINER, str(rank), str(options.steps_per_s), length], env=environ
            )
            for rank in range(options.ranks)
        ]
        time.sleep(WARM_S)
        before, began = used_s(agent.pid), time.monotonic()
        time.sleep(options.seconds)
        core_pct = 100 * (used_s(agent.pid) - before) / (time.monotonic() - began)
        for trainer in trainers:
            trainer.wait()
        rss = peak_mib(agent.pid)
        agent.send_signal(signal.SIGTERM)
        agent.wait()
    receiver.close()
    windows = receiver.of("steps")
    steps = sum(one.body["last"] - one.body["first"] + 1 for one in windows)
    events = list(receiver.events.values())
    sent = sum(len(body) for body in receiver.bodies)
    plain = sum(len(json.dumps(to_wire(event), separators=(",", ":"))) for event in events)
    each = sent * len(windows) / len(events) / len(windows)
    print(
        f"{options.ranks} ranks, {options.steps_per_s:g} steps/s each, {options.seconds:g} s: {steps} steps"
    )
    rows = [
        ("agent, processor time", f"{core_pct:.2f} % of a core", core_pct > CORE_PCT, f"{CORE_PCT:g} %"),
        ("agent, peak memory", f"{rss:.1f} MiB", rss > RSS_MIB, f"{RSS_MIB:g} MiB"),
        ("an event on the wire", f"{each:.0f} bytes", each > WINDOW_BYTES, f"{WINDOW_BYTES:g} bytes"),
        ("the same as plain JSON", f"{plain / len(events):.0f} bytes", False, ""),
        ("step windows, events in all", f"{len(windows)}, {len(events)}", False, ""),
    ]
    for name, figure, late, goal in rows:
        print(f"| {name:<30} | {figure:>20} | {goal + (' MISSED' if late else ''):<16} |")
    return int(any(late for _, _, late, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
