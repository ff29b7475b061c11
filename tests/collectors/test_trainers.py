"""What an agent makes of spools that it finds all at once, after a time without any agent."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ett_collector.agent import tail
from ett_collector.agent import trainers as trainers_module
from ett_collector.agent.attempts import Attempt
from ett_collector.agent.config import AgentConfig
from ett_collector.agent.pending import Pending
from ett_collector.agent.trainers import Trainers
from ett_collector.process import boot_id
from ett_collector.slots import SLOT
from tests.collectors.conftest import until

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench

WAITER = """
import ett_collector as ett
ett.start("j", attempt="a")
ett.step_begin(0)
for n in range(300):
    with ett.data_wait(): pass
    with ett.phase("evaluation"): pass
    ett.step(n)
ett.end()
"""
TRAINER = """
import os, signal
import ett_collector as ett
ett.start()
for n in range(300):
    with ett.phase("evaluation"): pass
os.kill(os.getpid(), signal.SIGKILL)
"""
# Whose next file lies ready where it ends, as it does after three quarters of the first.
RANK = """
import glob, os, sys, time
import ett_collector as ett
ett.start("j", attempt="a", rank=int(sys.argv[1]), world_size=2)
for n in range(900):
    with ett.phase("evaluation"): pass
while not glob.glob(f"{os.environ['ETT_SPOOL_DIR']}/trainer-{os.getpid()}-*.000002.spool"): time.sleep(0.001)
ett.end()
"""


@pytest.mark.parametrize("ahead", [-3600, 72_000])
def test_a_trainer_whose_wall_clock_is_wrong(bench: Bench, ahead: int) -> None:
    """All that it said is told at the time when it was, and its attempt ends with it."""
    code = f"import time\nreal, time.time_ns = time.time_ns, lambda: real() + {ahead} * 10**9\n"
    bench.trainer(code + 'import ett_collector as ett\nett.start("j")\nett.step(1)\nett.end()').communicate()
    pending = Pending()
    agent = Trainers(AgentConfig.from_args(["--spool-dir", str(bench.spool)], os.environ), {}, pending)
    agent.visit()
    agent.tell(agent.clock.now() + 10**10, all_windows=True)

    assert "attempt_end" in {event["type"] for event in pending.events}
    stamps = [event[name] for event in pending.events for name in ("ts", "start", "end") if name in event]
    (trace,) = agent.traces.values()
    assert all(abs(agent.clock.now() - stamp) < 30 * 10**9 for stamp in (*stamps, trace.newest))


def test_the_clock_begins_anew_where_nobody_is() -> None:
    """A wall clock that was wrong when the agent first ran does not count until the next boot."""
    config = AgentConfig.from_args([], os.environ)
    old = {"boot": boot_id(), "anchor": 7}
    attempt = Attempt("j", "a", ended=True, ends=[{"at": 0}]).to_json()
    assert 7 != Trainers(config, {"agent": {"clock": old}}, Pending()).clock.anchor
    kept = Trainers(config, {"agent": {"clock": old}, "attempts": {"j\na": attempt}}, Pending())
    assert 7 == kept.clock.anchor


@pytest.mark.parametrize("order", [1, -1])
def test_a_killed_trainer_with_more_events_than_one_cycle_takes(
    bench: Bench, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher's word is heard before it is buried, whichever spool the folder lists first."""
    command = (sys.executable, "-m", "ett_collector.run", "--job", "j", "--", sys.executable, "-c", TRAINER)
    bench.spawn(*command).communicate(timeout=30)
    found = trainers_module.list_spools(str(bench.spool))
    monkeypatch.setattr(trainers_module, "list_spools", lambda _: dict(sorted(found.items())[::order]))
    monkeypatch.setattr(trainers_module, "EVENTS_A_CYCLE", 100)
    pending = Pending()
    agent = Trainers(AgentConfig.from_args(["--spool-dir", str(bench.spool)], os.environ), {}, pending)
    events = []
    while agent.visit():
        events += pending.events
        pending.clear()
    agent.tell(agent.clock.now() + 10**10, all_windows=True)
    events += pending.events

    (end,) = (event for event in events if event["type"] == "attempt_end")
    assert ("failed", 9) == (end["outcome"], end["signal"])
    assert 300 == sum(event.get("phase") == "evaluation" for event in events)


def test_an_attempt_whose_ranks_one_cycle_does_not_read_has_one_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the last rank's, also where a look stops behind the record with which that one ends."""
    for rank in ("0", "1"):
        bench.spawn(sys.executable, "-c", RANK, rank).communicate(timeout=30)
    monkeypatch.setattr(trainers_module, "EVENTS_A_CYCLE", 1000)
    pending = Pending()
    agent = Trainers(AgentConfig.from_args(["--spool-dir", str(bench.spool)], os.environ), {}, pending)
    events, looks, more = [], 0, True
    while more:
        more = agent.visit()
        agent.tell(agent.clock.now() + 10**10, all_windows=True)
        events += pending.events
        pending.clear()
        looks += 1

    (end,) = (event for event in events if event["type"] == "attempt_end")
    assert (max(trace.newest for trace in agent.traces.values()), "completed") == (end["ts"], end["outcome"])
    assert 1 < looks


def test_an_attempt_without_trainers_ends_with_the_last_of_its_launchers(bench: Bench) -> None:
    """Nobody of it records anything but its `ett-run`s, of which one is there for longer."""
    launch = (sys.executable, "-m", "ett_collector.run", "--job", "j", "--attempt", "a", "--no-auto", "--")
    long = bench.spawn(*launch, "sh", "-c", "echo up; cat")
    assert long.stdout is not None
    long.stdout.readline()  # a launcher is on record, head and all, before it starts anything
    bench.spawn(*launch, "true").communicate(timeout=30)
    assert 2 == len(trainers_module.list_spools(str(bench.spool)))
    pending = Pending()
    agent = Trainers(AgentConfig.from_args(["--spool-dir", str(bench.spool)], os.environ), {}, pending)
    for _ in range(2):
        agent.visit()
        agent.tell(agent.clock.now() + 10**10, all_windows=True)
    assert {"attempt_start"} == {event["type"] for event in pending.events}

    long.communicate(timeout=30)
    agent.visit()
    agent.tell(agent.clock.now() + 10**10, all_windows=True)
    ends = [event for event in pending.events if event["type"] == "attempt_end"]
    assert [max(trace.newest for trace in agent.traces.values())] == [end["ts"] for end in ends]


def test_a_launcher_that_stays_for_hours_after_its_trainer(bench: Bench) -> None:
    """The attempt ended with the trainer; the launcher is waited for, and its end is none of the attempt's."""
    launch = (sys.executable, "-m", "ett_collector.run", "--job", "j", "--")
    code = "import ett_collector as ett; ett.start(); ett.step(1); ett.end(); input()"
    job = bench.spawn(*launch, sys.executable, "-c", code)
    pending = Pending()
    agent = Trainers(AgentConfig.from_args(["--spool-dir", str(bench.spool)], os.environ), {}, pending)

    def ends() -> list[dict[str, Any]]:
        agent.visit()
        agent.tell(agent.clock.now() + 2 * trainers_module.KEEP_ATTEMPT_NS, all_windows=True)
        return [event for event in pending.events if event["type"] == "attempt_end"]

    until(ends)
    assert 1 == len(ends())
    assert [] == agent.alive()
    job.communicate("over", timeout=30)
    assert 1 == len(ends())
    for _ in range(2):
        agent.clear()
        ends()
    assert ({}, {}) == (agent.traces, agent.attempts)


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_deaths_in_one_look_the_kill_is_the_cause(
    bench: Bench, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank was killed, the other stumbled over it: an agent that was busy meanwhile finds both dead."""
    start = 'import ett_collector as ett\nett.start("j", attempt="a", rank={})\nsay("up"); wait()\n'
    ends = ("raise RuntimeError('connection reset')", "os.kill(os.getpid(), 9)")
    ranks = [bench.trainer(start.format(rank) + then) for rank, then in enumerate(ends)]
    for one in ranks:
        assert one.stdout is not None
        one.stdout.readline()
    found = trainers_module.list_spools(str(bench.spool))
    monkeypatch.setattr(trainers_module, "list_spools", lambda _: dict(sorted(found.items())[::order]))
    pending = Pending()
    agent = Trainers(AgentConfig.from_args(["--spool-dir", str(bench.spool)], os.environ), {}, pending)
    agent.visit()
    for one in reversed(ranks):
        one.communicate("\n", timeout=30)
    agent.visit()
    agent.tell(agent.clock.now() + 10**10, all_windows=True)

    (end,) = (event for event in pending.events if event["type"] == "attempt_end")
    assert ("failed", 1) == (end["outcome"], end["failed_rank"])


def test_what_is_open_where_reading_paused_is_not_open_now(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps and waits of a backlog are told as they were, wherever a look at it ended."""
    bench.trainer(WAITER).communicate(timeout=30)
    monkeypatch.setattr(trainers_module, "EVENTS_A_CYCLE", 1)
    monkeypatch.setattr(tail, "FIRST_BYTES", 61 * SLOT)
    monkeypatch.setattr(tail, "CHUNK_BYTES", 61 * SLOT)
    pending = Pending()
    options = ["--spool-dir", str(bench.spool), "--window", "0.000001"]
    agent = Trainers(AgentConfig.from_args(options, os.environ), {}, pending)
    events, more = [], True
    while more:
        more = agent.visit()
        agent.tell(agent.clock.now(), all_windows=False)
        events += pending.events
        pending.clear()

    assert list(range(300)) == [event["first"] for event in events if event["type"] == "steps"]
    assert [] == [
        event for event in events if event["type"] == "phase_open" or event.get("phase") == "data_stall"
    ]
