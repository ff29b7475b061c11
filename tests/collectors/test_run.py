"""`ett-run`: the command's status is its own, and the agent learns it."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.collectors.conftest import until
from tests.collectors.test_recorder import spools

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench

RUN = (sys.executable, "-m", "ett_collector.run")


@pytest.mark.parametrize(
    ("code", "status", "record"),
    [
        ("raise SystemExit(0)", 0, {"exit_code": 0}),
        ("raise SystemExit(3)", 3, {"exit_code": 3}),
        ("import os; os.kill(os.getpid(), 9)", 137, {"signal": 9}),
    ],
)
def test_status_is_passed_on_and_noted(bench: Bench, code: str, status: int, record: dict[str, int]) -> None:
    """Exit codes as they are, signals as a shell would give them."""
    run = bench.spawn(*RUN, "--job", "j", "--attempt", "a", "--", sys.executable, "-c", code)

    assert status == run.wait(timeout=30)
    last = spools(bench.spool)[0][-1]
    assert {"t": "exit", **record} == {name: value for name, value in last.items() if name != "at"}


@pytest.mark.parametrize("ahead", [-3600, 90_000])
def test_a_clock_that_is_set_between_the_run_and_its_trainer(bench: Bench, ahead: int) -> None:
    """The launcher's start takes as long as it took; on another machine the wall clock is all there is."""
    code = f"""
import os, time
real, time.time_ns = time.time_ns, lambda: real() + {ahead} * 10**9
import ett_collector as ett
ett.start()
"""
    bench.spawn(*RUN, "--job", "j", "--", sys.executable, "-c", code).communicate(timeout=30)
    records = next(one for one in spools(bench.spool) if one[0]["kind"] == "trainer")
    spans = [one["end"] - one["start"] for one in records if one["t"] == "phase"]
    assert 0 <= sum(spans) < 30 * 10**9
    assert abs(records[0]["launched_at"] - time.time_ns() - ahead * 10**9) < 30 * 10**9

    other = "import os; os.environ['ETT_ATTEMPT_LAUNCHED_MONO'] = 'elsewhere:5'\n"
    other += "import ett_collector as ett\nett.start()"
    before = time.time_ns()
    bench.spawn(*RUN, "--job", "k", "--", sys.executable, "-c", other).communicate(timeout=30)
    heads = [one[0] for one in spools(bench.spool)]
    (told,) = (one["launched_at"] for one in heads if (one["kind"], one["job"]) == ("trainer", "k"))
    assert before <= told <= time.time_ns()


def test_command_that_cannot_be_run(bench: Bench) -> None:
    """127 and a message, like a shell; the attempt is on record as failed."""
    run = bench.spawn(*RUN, "--job", "j", "--", "/no/such/trainer")
    _, errors = run.communicate(timeout=30)

    assert (127, True) == (run.returncode, "No such file" in errors)
    assert 127 == spools(bench.spool)[0][-1]["exit_code"]


def test_signals_are_passed_on(bench: Bench) -> None:
    """A scheduler's SIGTERM reaches the trainer, which may end as it likes."""
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    run = bench.spawn(*RUN, "--", sys.executable, "-c", code)
    assert run.stdout is not None
    run.stdout.readline()
    run.send_signal(signal.SIGTERM)

    assert 7 == run.wait(timeout=30)


EARLY = """
import os, signal, subprocess, sys
from ett_collector import run
begin = subprocess.Popen
def begin_late(*command, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return begin(*command, **options)
subprocess.Popen = begin_late
sys.exit(run.main(["--job", "j", "--", "sleep", "60"]))
"""


def test_a_signal_that_comes_before_the_command_is_passed_on(bench: Bench) -> None:
    """A job that is cancelled as it starts ends."""
    assert 128 + signal.SIGTERM == bench.spawn(sys.executable, "-c", EARLY).wait(timeout=30)


def test_children_get_one_job_and_attempt(bench: Bench) -> None:
    """The trainer below it records the same attempt, and the agent sends one start and one end for both."""
    code = "import ett_collector as ett, sys\nett.start()\nett.step(0)\nsys.exit(3)"
    agent = bench.agent()
    run = bench.spawn(*RUN, "--job", "j", "--", sys.executable, "-c", code)
    run.wait(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    starts, end = bench.receiver.of("attempt_start"), bench.receiver.of("attempt_end")[-1]
    assert {("j", end.attempt)} == {(e.job, e.attempt) for e in starts}
    assert 1 == len({e.start for e in starts})
    assert ("failed", 3, 0) == (end.body["outcome"], end.body["exit_code"], end.body["failed_rank"])


def test_trainer_that_dies_before_it_records(bench: Bench) -> None:
    """The attempt that never said a word has a start and an end all the same."""
    agent = bench.agent()
    before = time.time_ns()
    run = bench.spawn(
        *RUN, "--job", "j", "--attempt", "a", "--", sys.executable, "-c", "import no_such_module"
    )
    run.communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    start, end = bench.receiver.of("attempt_start")[0], bench.receiver.of("attempt_end")[0]
    assert before < (start.start or 0) < (end.start or 0) < time.time_ns()
    assert {"outcome": "failed", "exit_code": 1, "failed_node": "node-a"} == end.body
