"""What recording costs the trainer, beside its peers in one run: `make bench-recorder`.

Each row is timed call by call (two clock readings a call, which every row contains and the first shows alone),
in turns of all rows, so that what else the machine does hits all alike. Prints median and p99.9, and the ratio of
the medians to `time.time_ns()`. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ett_collector as ett

if TYPE_CHECKING:
    from collections.abc import Callable

COLLECTORS = str(Path(__file__).parents[2] / "collectors")
US = 1000
IMPORT_MS = 15


class Row(NamedTuple):
    """A call that is timed; goals in ns, None where there is none."""

    name: str
    call: Callable[[], object]
    median: int | None = None
    worst: int | None = None  # p99.9


class _Nothing:
    """A logger of ml-goodput-measurement's kind that sends nothing."""

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        """Nothing."""


def ours() -> list[Row]:
    """The calls of the recorder, one after the other in one spool."""
    steps = iter(range(1 << 60)).__next__

    def mark() -> None:
        ett.step(steps(), 4096)

    def span() -> None:
        with ett.phase("evaluation"):
            pass

    def wait() -> None:
        with ett.data_wait():
            pass

    return [
        Row("ett.step(n, samples)", mark, 1 * US, 5 * US),
        Row("with ett.phase(name)", span, 3 * US),
        Row("with ett.data_wait()", wait, 3 * US),
    ]


def disabled() -> list[Row]:
    """The same calls before `start`, or with ETT_DISABLE=1."""
    return [one._replace(name=f"{one.name}, disabled", median=US // 2, worst=None) for one in ours()]


def peers() -> list[Row]:
    """What else a trainer could call; those that are not installed are left out, and named."""
    rows = []
    try:
        from ml_goodput_measurement import goodput

        logging.disable(logging.CRITICAL)  # it says on standard error that it is there
        recorder = goodput.GoodputRecorder("job", "log", logging_enabled=True, cloud_logger=_Nothing())
        steps = iter(range(1 << 60)).__next__
        rows.append(
            Row(
                "ml-goodput-measurement record_step_start_time, no logger",
                lambda: recorder.record_step_start_time(steps()),
            )
        )
    except ImportError:
        print("ml-goodput-measurement is not installed")
    try:
        from opentelemetry.sdk.trace import TracerProvider

        tracer = TracerProvider().get_tracer("trainer")

        def span() -> None:
            with tracer.start_as_current_span("evaluation"):
                pass

        rows.append(Row("OpenTelemetry span, no exporter", span))
    except ImportError:
        print("opentelemetry-sdk is not installed")
    return rows


def measure(rows: list[Row], rounds: int, calls: int) -> dict[str, list[int]]:
    """Each call's time (ns), sorted, by name of its row."""
    clock = time.perf_counter_ns
    found = {row.name: array("q") for row in rows}
    gc.collect()
    for _ in range(rounds):
        for row in rows:
            call, took = row.call, array("q", bytes(8 * calls))  # kept numbers would fault in new memory
            for _ in range(calls // 20):
                call()
            for index in range(calls):
                begin = clock()
                call()
                took[index] = clock() - begin
            found[row.name] += took
    return {name: sorted(times) for name, times in found.items()}


def paced(calls: int) -> list[int]:
    """`ett.step` as a trainer calls it: something else has been in the caches since the last one."""
    clock = time.perf_counter_ns
    took = array("q", bytes(8 * calls))
    for n in range(calls):
        time.sleep(0.001)
        begin = clock()
        ett.step(n, 4096)
        took[n] = clock() - begin
    return sorted(took)


def imports(runs: int) -> tuple[float, float]:
    """Median ms that `import ett_collector` and `ett.start()` add to `python -c pass`, in paired runs."""
    code = f"import sys; sys.path.insert(0, {COLLECTORS!r}); "
    alone, imported, started = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            for times, work in (
                (alone, "pass"),
                (imported, "import ett_collector"),
                (started, f"import ett_collector as e; e.start('j', spool_dir={folder!r})"),
            ):
                begin = time.perf_counter()
                subprocess.run([sys.executable, "-I", "-c", code + work], check=True)
                times.append((time.perf_counter() - begin) * 1000)
    floor = statistics.median(alone)
    return statistics.median(imported) - floor, statistics.median(started) - floor


def show(name: str, median: float, worst: float | None, ratio: float | None, goal: str) -> None:
    """One line of the table."""
    last = "" if worst is None else f"{worst:8.2f} us"
    times = "" if ratio is None else f"{ratio:5.1f}"
    print(f"| {name:<58} | {median:8.2f} us | {last:>11} | {times:>5} | {goal:<22} |", flush=True)


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=10_000, help="of each row in a round")
    options = parser.parse_args()
    os.environ["ETT_DISABLE"] = "0"
    floor = [Row("(two clock readings)", lambda: None), Row("time.time_ns()", time.time_ns)]
    off, off_rows = disabled(), []
    times = measure(off, options.rounds, options.calls)
    off_rows = [(row, times[row.name]) for row in off]
    with tempfile.TemporaryDirectory() as folder:
        recorder = ett.start("bench", spool_dir=folder)
        rows = [*floor, *ours(), *peers()]
        times = measure(rows, options.rounds, options.calls)
        each_ms = paced(5000)
        print(f"{recorder.dropped} dropped, {recorder.errors} errors, {sys.version.split()[0]}")
    base = times["time.time_ns()"][len(times["time.time_ns()"]) // 2]
    missed = recorder.dropped + recorder.errors
    print(f"| {'call':<58} | {'median':>11} | {'p99.9':>11} | {'ratio':>5} | {'goal':<22} |")
    for row, found in [*((row, times[row.name]) for row in rows), *off_rows]:
        median, worst = found[len(found) // 2], found[len(found) * 999 // 1000]
        goal = "" if row.median is None else f"{row.median / US:g} us"
        goal += "" if row.worst is None else f", {row.worst / US:g} us"
        late = (row.median and median > row.median) or (row.worst and worst > row.worst)
        missed += bool(late)
        show(row.name, median / US, worst / US, median / base, goal + (" MISSED" if late else ""))
    show("ett.step, once a ms", each_ms[2500] / US, each_ms[4995] / US, each_ms[2500] / base, "")
    imported, started = imports(15)
    missed += imported > IMPORT_MS
    show("import ett_collector, above python -c pass", imported * US, None, None, f"{IMPORT_MS} ms")
    show("import and ett.start()", started * US, None, None, "")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
