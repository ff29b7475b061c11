"""Times ml-goodput-measurement 0.2.3 on an in-memory job of N steps with 10 restarts; prints one JSON line.

Run by core.py in a process of its own; needs `pip install ml-goodput-measurement==0.2.3`.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import resource
import sys
import tempfile
import time
from typing import Any

logging.disable(logging.CRITICAL)


def entries(steps: int, restarts: int = 10, lose: int = 20) -> list[dict[str, Any]]:
    """The log of the job: the peer's own vocabulary, one entry a step."""
    now = dt.datetime.now(dt.timezone.utc).timestamp() - steps * 1.2 - 100_000
    out: list[dict[str, Any]] = []
    step, each = 0, steps // (restarts + 1)

    def entry(**fields: object) -> None:
        out.append({"job_name": "j", **fields})

    for attempt in range(restarts + 1):
        entry(job_start_time=now)
        for name, seconds in (("tpu_init", 10), ("training_prep", 20), ("data_loading", 5)):
            entry(**{f"{name}_start_time": now})
            now += seconds
            entry(**{f"{name}_end_time": now})
        for _ in range(each if attempt < restarts else steps - each * restarts):
            entry(step_count=step, step_start_time=now)
            now += 1.0
            step += 1
        if attempt < restarts:
            now += 60
            step -= lose
    entry(job_end_time=now)
    return out


class Memory:
    """The peer's logger over a list: no network in the measurement."""

    def __init__(self, log: list[dict[str, Any]]) -> None:
        self.log = log

    def read_cloud_logging_entries(
        self, start_time: object = None, end_time: object = None, last_entry_info: Any = None
    ) -> Any:
        del start_time, end_time
        new = self.log[last_entry_info[1] if last_entry_info else 0 :]
        stamp = dt.datetime.fromtimestamp(list(new[-1].values())[-1], dt.timezone.utc) if new else None
        return new, (stamp, len(self.log)) if new else (None, None)


def main(steps: int) -> None:
    """Cold call, and the call after one new step."""
    from ml_goodput_measurement.src import goodput

    log = entries(steps)
    with tempfile.TemporaryDirectory() as folder:
        calculator = goodput.GoodputCalculator("j", "l", Memory(log), cache_dir=folder)
        begin = time.perf_counter()
        calculator.get_job_goodput(include_badput_breakdown=True)
        cold = time.perf_counter() - begin
        last = max(e["step_count"] for e in log if "step_count" in e)
        log.append({"job_name": "j", "step_count": last + 1, "step_start_time": log[-1]["job_end_time"]})
        begin = time.perf_counter()
        calculator.get_job_goodput(include_badput_breakdown=True)
        warm = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cold_s": cold, "warm_s": warm, "peak_mib": peak}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
