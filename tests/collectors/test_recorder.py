"""The recorder in real trainer processes: what it writes, and that nothing of it reaches the trainer."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ett_collector.agent.stopwatch import Stopwatch
from ett_collector.agent.tail import Position, list_spools, read_spool
from tests.collectors.conftest import COLLECTORS, PATIENT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.collectors.conftest import Bench


def spools(folder: Path, torn: int = 0) -> list[list[dict[str, Any]]]:
    """The records of each spool in a folder, as the agent works them out; at most `torn` that are cut off."""
    found = []
    for name, numbers in sorted(list_spools(str(folder)).items()):
        records: list[dict[str, Any]] = []
        watch = Stopwatch(name[-32:][:8])
        position, more = Position(), True
        while more:
            read = read_spool(str(folder), name, numbers, position, patient=False)
            torn -= read.torn
            records += [record for record in map(watch.take, read.records) if record is not None]
            position, more = read.position, read.more
        found.append(records)
    assert torn >= 0
    return found


def run(bench: Bench, code: str, **environ: str) -> list[dict[str, Any]]:
    """The records of a trainer that must end well."""
    trainer = bench.trainer(f"import ett_collector as ett{PATIENT}{code}", **environ)
    out, errors = trainer.communicate(timeout=30)
    assert trainer.returncode == 0, out + errors
    assert errors == ""
    found = spools(bench.spool)
    return found[0] if found else []


def kinds(records: list[dict[str, Any]]) -> list[str]:
    """The types of records, without what the process itself gives."""
    return [r["t"] for r in records if r["t"] != "head" and r.get("phase") != "process_import"]


def test_import_is_light_and_starts_nothing() -> None:
    """No third-party module, no thread, no file, no socket."""
    code = (
        "import sys, os, threading\n"
        "before = set(sys.modules)\n"
        "fds = set(os.listdir('/proc/self/fd'))\n"
        "import ett_collector\n"
        "assert fds == set(os.listdir('/proc/self/fd'))\n"
        "assert threading.active_count() == 1\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "strange = names - set(sys.stdlib_module_names) - {'ett_collector'}\n"
        "assert not strange, strange\n"
        "assert 'socket' not in names and 'asyncio' not in names\n"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {COLLECTORS!r})\n" + code],
        check=False,
        capture_output=True,
        text=True,
    )

    assert ("", 0) == (done.stderr, done.returncode)


def test_a_run_from_start_to_end(bench: Bench) -> None:
    """Head, phases twice, steps, waits, checkpoints, end; all of it what happened, in order."""
    records = run(
        bench,
        """
ett.start("dlrm", attempt="a0", rank=3, team="ads", labels={"k": "v"}, gpus=16)
with ett.phase("checkpoint_load", step=7, work_key="sha:1", attrs={"files": 2}): pass
ett.checkpoint_loaded(7, samples=700)
ett.step_begin(8)
with ett.data_wait(): pass
ett.step(8, 800)
@ett.phase("evaluation")
def evaluate(x): return x + 1
assert evaluate(1) == 2
ett.checkpoint_committed(8, mode="async", size=5)
ett.end()
ett.step(9)
""",
    )
    head = records[0]

    expected = [
        "open",
        "phase",
        "checkpoint",
        "begin",
        "wait",
        "waited",
        "step",
        "open",
        "phase",
        "checkpoint",
        "end",
    ]
    assert expected == kinds(records)
    assert ("dlrm", "a0", 3, 16) == (head["job"], head["attempt"], head["rank"], head["gpus"])
    assert {"team": "ads"} == head["facts"]
    phase = next(r for r in records if r["t"] == "phase" and r["phase"] == "checkpoint_load")
    opened = next(r for r in records if r["t"] == "open")
    assert (opened["span"], opened["start"], 7, "sha:1") == (
        phase["span"],
        phase["start"],
        phase["step"],
        phase["work_key"],
    )
    step = next(r for r in records if r["t"] == "step")
    begin = next(r for r in records if r["t"] == "begin")
    assert (begin["at"], 800) == (step["start"], step["samples"])


def test_steps_tile_the_time_between_marks(bench: Bench) -> None:
    """Each step begins where the one before ended, and knows how much of it was a phase or a wait."""
    records = run(
        bench,
        """
ett.start("j")
with ett.phase("model_build"): pass
ett.step_begin(0)
for n in range(3):
    with ett.data_wait(): time.sleep(0.002)
    with ett.phase("checkpoint_save_block"):
        time.sleep(0.004)
        with ett.phase("custom"): time.sleep(0.002)
    with ett.phase("upload", overlapped=True): time.sleep(0.002)
    ett.step(n)
""",
    )
    steps = [r for r in records if r["t"] == "step"]
    begin = next(r for r in records if r["t"] == "begin")
    saves = [r for r in records if r["t"] == "phase" and r["phase"] == "checkpoint_save_block"]

    assert [begin["at"], steps[0]["end"], steps[1]["end"]] == [s["start"] for s in steps]
    assert [s["end"] - s["start"] for s in saves] == [s["blocked"] for s in steps]
    assert all(2_000_000 <= s["wait"] < s["end"] - s["start"] - s["blocked"] for s in steps)


def test_first_step_without_any_word_before_it_has_no_length(bench: Bench) -> None:
    """Nobody said what the process did until then: that is not step time."""
    first, second = (r for r in run(bench, "ett.start('j'); ett.step(0); ett.step(1)") if r["t"] == "step")

    assert first["start"] == first["end"] == second["start"]


def test_long_wait_is_a_span(bench: Bench) -> None:
    """A wait of over a second stands where it was, and is not counted again with the step."""
    records = run(bench, "ett.start('j'); ett.step(0)\nwith ett.data_wait(): time.sleep(1.01)\nett.step(1)")
    stall = next(r for r in records if r["t"] == "phase" and r["phase"] == "data_stall")
    step = [r for r in records if r["t"] == "step"][1]

    assert (0, stall["end"] - stall["start"]) == (step["wait"], step["blocked"])


def test_what_was_recorded_before_a_sigkill_is_there(bench: Bench) -> None:
    """The last thing said is read; the phase it died in is open."""
    trainer = bench.trainer("""
import ett_collector as ett
ett.start("j")
for n in range(1000): ett.step(n)
ett.phase("checkpoint_save_block").__enter__()
os.kill(os.getpid(), 9)
""")

    assert -signal.SIGKILL == trainer.wait(timeout=30)
    records = spools(bench.spool)[0]
    assert list(range(1000)) == [r["n"] for r in records if r["t"] == "step"]
    assert ("open", "checkpoint_save_block") == (records[-1]["t"], records[-1]["phase"])


def test_exceptions_pass_through_and_are_named(bench: Bench) -> None:
    """The span ends with the exception's name; an uncaught one is in the last record."""
    trainer = bench.trainer("""
import ett_collector as ett
ett.start("j")
try:
    with ett.phase("evaluation"): raise KeyError("x")
except KeyError: say("seen")
raise RuntimeError("CUDA error: an illegal memory access")
""")
    out, errors = trainer.communicate(timeout=30)
    records = spools(bench.spool)[0]

    assert ("seen\n", 1) == (out, trainer.returncode)
    assert "RuntimeError" in errors
    assert {"raised": "KeyError"} == next(
        r for r in records if r.get("phase") == "evaluation" and "attrs" in r
    )["attrs"]
    assert records[-1]["error"].startswith("RuntimeError: CUDA error")


def test_nothing_raises_into_the_trainer(bench: Bench) -> None:
    """Wrong values of any kind are counted, and the trainer goes on."""
    records = run(
        bench,
        """
class Odd:
    def __str__(self): raise ValueError
ett.start(Odd(), labels=5)
rec = ett.start("j", labels={"x": object()})
for bad in (None, "x", Odd(), float("nan"), 2.5, -1):
    ett.step(bad); ett.step_begin(bad); ett.step(1, bad)
    ett.checkpoint_committed(bad); ett.checkpoint_loaded(bad)
    with ett.phase(bad, step=bad, attrs={"a": bad}): pass
    ett.fault(bad, bad); ett.fault("xid", "t", code=bad)
    with ett.data_wait(): pass
ett.step(7)
ett.end(Odd()); ett.end()
assert rec.errors > 0
""",
    )

    assert 7 in [r["n"] for r in records if r["t"] == "step"]


def test_threads_record_whole_lines(bench: Bench) -> None:
    """Eight threads at once: every record is whole, and every span has a name of its own."""
    records = run(
        bench,
        """
import threading
ett.start("j")
def work():
    for _ in range(200):
        with ett.phase("upload", overlapped=True): pass
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
""",
    )
    ends = [r for r in records if r["t"] == "phase" and r["phase"] == "upload"]

    assert (1600, 1600) == (len(ends), len({r["span"] for r in ends}))


def test_signal_handler_may_record(bench: Bench) -> None:
    """A handler that runs in the middle of a call does not wait for its own thread.

    The next signal comes when it is done: else, where a file takes its time, each would be handled within the last.
    """
    records = run(
        bench,
        """
import signal
is_over = False
def handle(*_):
    ett.fault("preemption", "notice")
    if not is_over: signal.setitimer(signal.ITIMER_REAL, 0.0005)
ett.start("j")
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
for n in range(5000): ett.step(n)
is_over = True
signal.setitimer(signal.ITIMER_REAL, 0)
""",
    )

    assert 5000 == len([r for r in records if r["t"] == "step"])
    assert [r for r in records if r["t"] == "fault"]


def test_forked_child_is_not_its_parent(bench: Bench) -> None:
    """Nothing that a child says goes into the parent's spool; it may start one of its own."""
    run(
        bench,
        """
ett.start("j", attempt="a", rank=0)
pid = os.fork()
if not pid:
    ett.step(99)
    with ett.phase("child"): pass
    ett.start("j", attempt="a", rank=1); ett.step(1); ett.end()
    os._exit(0)
os.waitpid(pid, 0)
ett.step(0)
""",
    )
    by_rank = {records[0]["rank"]: kinds(records) for records in spools(bench.spool)}

    assert {0: ["step", "exit"], 1: ["step", "end"]} == by_rank


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_are_no_ranks(bench: Bench, method: str, tmp_path: Path) -> None:
    """Daemonic children that run the trainer's own module do not record."""
    script = tmp_path / "train.py"
    script.write_text(f"""
import multiprocessing, ett_collector as ett
ett.start("j")
def load(_):
    ett.start("j"); ett.step(5)
    return type(ett.current()).__name__
if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert pool.map(load, range(4)) == ["NullRecorder"] * 4
    ett.step(0); ett.end()
""")
    trainer = bench.spawn(
        sys.executable, str(script), RANK="0", TORCHELASTIC_RUN_ID="r", TORCHELASTIC_RESTART_COUNT="0"
    )
    _, errors = trainer.communicate(timeout=60)

    assert (0, "") == (trainer.returncode, errors)
    assert [["step", "end"]] == [kinds(records) for records in spools(bench.spool)]


def test_disabled_writes_nothing(bench: Bench) -> None:
    """`ETT_DISABLE=1`: all calls work, no folder is made."""
    run(bench, "ett.start('j'); ett.step(1)\nwith ett.phase('x'): pass\nett.end()", ETT_DISABLE="1")

    assert not bench.spool.exists()


def test_start_again(bench: Bench) -> None:
    """The same attempt: the same recorder. Another one, in the same process: an attempt on kept hardware."""
    run(
        bench,
        """
first = ett.start("j", attempt="a0")
assert ett.start("j", attempt="a0") is first
ett.start("j", attempt="a1"); ett.end()
""",
    )
    heads = {records[0]["attempt"]: records for records in spools(bench.spool)}

    assert "unknown" == heads["a0"][-1]["outcome"]
    assert heads["a1"][0]["released_between"] is False
    assert heads["a1"][0]["began"] >= heads["a0"][-1]["at"]
