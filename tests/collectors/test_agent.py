"""Agents, trainers and a service as real processes: facts arrive, once in effect, whatever is killed."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.outbox import Outbox
from ett_collector.frames import pack
from ett_collector.slots import COMMIT, MAGIC, WORDS
from ett_collector.wire import CODING
from tests.collectors.conftest import until
from tests.collectors.receiver import Receiver

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench

START = "import ett_collector as ett\nett.start('j', attempt='a', gpus_on_node=8)\n"


def steps_of(receiver: Receiver) -> list[int]:
    """All steps that arrived, each as often as it is covered."""
    return sorted(n for e in receiver.of("steps") for n in range(e.body["first"], e.body["last"] + 1))


def test_killed_trainer(bench: Bench) -> None:
    """Its open phase ends at the kill, the attempt has failed by signal 9, and heartbeats stop naming it."""
    agent = bench.agent()
    trainer = bench.trainer(
        START + "ett.step_begin(0); ett.step(0); ett.step_begin(1); ett.step(1)\n"
        "ett.phase('checkpoint_save_block').__enter__(); say('saving'); time.sleep(60)\n"
    )
    assert trainer.stdout is not None
    trainer.stdout.readline()
    until(lambda: [e for e in bench.receiver.of("heartbeat") if e.body["jobs"]])
    killed_at = time.time_ns()
    trainer.kill()
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    save = next(e for e in bench.receiver.of("phase") if e.body["phase"] == "checkpoint_save_block")
    end = bench.receiver.of("attempt_end")[0]
    start = bench.receiver.of("attempt_start")[0]
    assert save.body["aborted"] is True
    assert killed_at <= (save.end or 0) == end.start
    assert ("failed", 0, "node-a") == (end.body["outcome"], end.body["failed_rank"], end.body["failed_node"])
    assert ({"node-a": 8}, ["node-a"]) == (start.body["gpus_by_node"], start.body["nodes"])
    assert [0, 1] == steps_of(bench.receiver)
    assert [] == bench.receiver.of("heartbeat")[-1].body["jobs"]


def test_signal_is_known_without_a_wrapper(bench: Bench) -> None:
    """A zombie, or a kernel that tells by pidfd, says which signal it was."""
    agent = bench.agent()
    trainer = bench.trainer(START + "say('up'); time.sleep(60)")
    assert trainer.stdout is not None
    trainer.stdout.readline()
    until(lambda: bench.receiver.of("heartbeat"))
    trainer.kill()  # not waited for: it stays a zombie
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    assert 9 == bench.receiver.of("attempt_end")[0].body["signal"]


def test_attempt_of_two_ranks_ends_with_the_last(bench: Bench) -> None:
    """One rank dead beside a live one is no end; heartbeats tell who lives."""
    agent = bench.agent()
    trainers = [
        bench.trainer(START.replace("'a'", f"'a', rank={rank}") + "say('up'); wait(); ett.end()")
        for rank in (0, 1)
    ]
    until(
        lambda: [
            e
            for e in bench.receiver.of("heartbeat")
            if e.body["jobs"] and e.body["jobs"][0]["ranks"] == [0, 1]
        ]
    )
    trainers[1].kill()
    until(lambda: bench.receiver.of("heartbeat")[-1].body["jobs"][0]["ranks"] == [0])
    assert [] == bench.receiver.of("attempt_end")
    trainers[0].communicate("\n", timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    end = bench.receiver.of("attempt_end")[0]
    assert ("failed", 1) == (end.body["outcome"], end.body["failed_rank"])


def test_trainer_that_ended_before_the_agent_began(bench: Bench) -> None:
    """A spool of yesterday is read like any other, and then deleted."""
    bench.trainer(START + "for n in range(50): ett.step(n)\nett.end()").communicate(timeout=30)
    dead = bench.trainer(
        START.replace("'a'", "'b'") + "ett.step(0); ett.step_begin(1); os.kill(os.getpid(), 9)"
    )
    dead.communicate(timeout=30)
    agent = bench.agent()
    until(lambda: len(bench.receiver.of("attempt_end")) == 2)
    bench.stop(agent)

    assert {"a": "completed", "b": "failed"} == {
        e.attempt: e.body["outcome"] for e in bench.receiver.of("attempt_end")
    }
    cut = next(e for e in bench.receiver.of("phase") if e.body.get("aborted"))
    assert {"death": "inferred"} == cut.body["attrs"]
    assert ["agent"] == [path.name for path in bench.spool.iterdir()]


def test_lost_answers_change_nothing(bench: Bench) -> None:
    """Stored, but the 200 got lost: sent again under the same identity with the same clock offset."""
    bench.receiver.lose_answers = 3
    agent = bench.agent()
    bench.trainer(START + "for n in range(500): ett.step(n)\nett.end()").communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    assert bench.receiver.duplicates > 0
    assert list(range(500)) == steps_of(bench.receiver)
    assert {1} == {len(offsets) for offsets in bench.receiver.offsets.values()}


def test_a_service_that_does_not_know_our_coding(bench: Bench) -> None:
    """An older one, or one that was rolled back meanwhile: gzip from then on, and nothing is given up."""
    agent = bench.agent()
    bench.trainer(START + "for n in range(50): ett.step(n)\nett.end()").communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    assert {CODING} == set(bench.receiver.codings)
    bench.receiver.spoken = ["gzip"]
    bench.trainer(START.replace("'a'", "'b'") + "ett.step(0)\nett.end()").communicate(timeout=30)
    until(lambda: len(bench.receiver.of("attempt_end")) == 2)
    bench.stop(agent)
    assert 415 == bench.receiver.requests[bench.receiver.codings.index("gzip") - 1][2]

    bench.receiver.codings.clear()
    agent = bench.agent()  # it tries again
    bench.trainer(START.replace("'a'", "'c'") + "ett.step(0)\nett.end()").communicate(timeout=30)
    until(lambda: len(bench.receiver.of("attempt_end")) == 3)
    bench.stop(agent)
    assert [CODING] + ["gzip"] * (len(bench.receiver.codings) - 1) == bench.receiver.codings
    assert not (bench.spool / "agent" / "dead-letters.jsonl").exists()


def test_agent_killed_at_any_moment(bench: Bench) -> None:
    """kill -9 and restart, again and again, while answers get lost: each fact arrives, once in effect."""
    chance = random.Random(11)
    trainer = bench.trainer(
        START
        + """
for n in range(400):
    with ett.phase("evaluation"): time.sleep(0.001)
    ett.step(n); time.sleep(0.004)
ett.checkpoint_committed(399)
ett.end()
"""
    )
    while trainer.poll() is None:
        bench.receiver.lose_answers = 1
        agent = bench.agent("--heartbeat", "0.1", "--window", "0.2")
        time.sleep(0.1 + 0.4 * chance.random())
        agent.kill()
        agent.communicate()
    agent = bench.agent()
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    assert list(range(400)) == steps_of(bench.receiver)
    evaluations = [e for e in bench.receiver.of("phase") if e.body["phase"] == "evaluation"]
    assert Counter(e.body["span"] for e in evaluations) == Counter({e.body["span"] for e in evaluations})
    assert 400 == len(evaluations)
    assert (1, 1) == (len(bench.receiver.of("checkpoint")), len(bench.receiver.of("attempt_end")))
    assert ["completed"] == [e.body["outcome"] for e in bench.receiver.of("attempt_end")]


def test_service_under_pressure(bench: Bench) -> None:
    """503 and 429 with Retry-After: nothing is sent before the time, and nothing is lost."""
    bench.receiver.script = [(503, {"Retry-After": "1"}), (429, {"Retry-After": "1"})]
    agent = bench.agent()
    bench.trainer(START + "for n in range(100): ett.step(n)\nett.end()").communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    tries = [at for at, events, _ in bench.receiver.requests if events]
    assert [503, 429, 200] == [status for _, events, status in bench.receiver.requests if events][:3]
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(tries[:3]))
    assert list(range(100)) == steps_of(bench.receiver)


def test_service_that_is_down(bench: Bench) -> None:
    """Events wait on disk; SIGTERM drains what it can in time; the next agent sends the rest."""
    agent = bench.agent("--drain", "0.2", url="http://127.0.0.1:9")
    bench.trainer(START + "for n in range(100): ett.step(n)\nett.end()").communicate(timeout=30)
    until(lambda: list((bench.spool / "agent").glob("outbox.*")) and not list(bench.spool.glob("*.spool")))
    errors = bench.stop(agent)
    assert "0 events sent" in errors

    agent = bench.agent()
    until(lambda: bench.receiver.of("steps"))
    bench.stop(agent)
    assert list(range(100)) == steps_of(bench.receiver)


def test_sigterm_drains(bench: Bench) -> None:
    """What trainers said before the agent's end is with the service when it has ended, also open windows."""
    agent = bench.agent("--heartbeat", "60", "--window", "60")
    trainer = bench.trainer(START + "for n in range(100): ett.step(n)\nsay('done'); time.sleep(60)")
    assert trainer.stdout is not None
    trainer.stdout.readline()
    until(lambda: bench.receiver.of("attempt_start"))
    errors = bench.stop(agent)

    assert list(range(100)) == steps_of(bench.receiver)
    assert ", 0 wait in " in errors


def test_refused_events_are_kept_aside(bench: Bench) -> None:
    """A quarantined event goes to the dead letters, and what is behind it arrives."""
    bench.receiver.refuse_types = {"checkpoint"}
    agent = bench.agent()
    bench.trainer(START + "ett.checkpoint_committed(1); ett.step(2); ett.end()").communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    letters = [
        json.loads(line) for line in (bench.spool / "agent" / "dead-letters.jsonl").read_text().splitlines()
    ]
    assert [("checkpoint", "the test refuses it")] == [
        (one["event"]["type"], one["reason"]) for one in letters
    ]
    assert [2] == steps_of(bench.receiver)


def test_what_the_wire_refuses_is_not_sent(bench: Bench) -> None:
    """The trainer said nonsense: the agent sees it by the wire's own rules."""
    agent = bench.agent()
    bench.trainer(START + "ett.step(-1); ett.step(3); ett.end()").communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    letters = [
        json.loads(line) for line in (bench.spool / "agent" / "dead-letters.jsonl").read_text().splitlines()
    ]
    assert ["first is out of range: -1"] == [one["reason"] for one in letters]
    assert [3] == steps_of(bench.receiver)


@pytest.mark.parametrize("status", [400, 413])
def test_body_that_cannot_be_taken_is_halved(bench: Bench, status: int) -> None:
    """Until the one event is found that it is about; that one is kept aside."""
    bench.trainer(START + "for n in range(20):\n ett.checkpoint_committed(n)\nett.end()").communicate(
        timeout=30
    )
    bench.receiver.script = [(status, {})] * 10
    agent = bench.agent()
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    letters = (bench.spool / "agent" / "dead-letters.jsonl").read_text().splitlines()
    sizes = [events for _, events, answer in bench.receiver.requests if answer == status]
    assert sizes[:4] == sorted(sizes[:4], reverse=True)
    assert len(letters) == sizes.count(1) > 0
    found = bench.receiver.events.values()
    assert 20 - sum('"checkpoint"' in one for one in letters) == sum(e.type == "checkpoint" for e in found)


def test_clock_offset_is_measured(bench: Bench) -> None:
    """A service an hour behind: every event carries it, also those that waited for the first contact."""
    ahead = Receiver(clock_ahead_ns=-3_600_000_000_000)
    try:
        bench.trainer(START + "ett.step(0); ett.end()").communicate(timeout=30)
        agent = bench.agent(url=ahead.url)
        until(lambda: ahead.of("attempt_end"))
        bench.stop(agent)
        offsets = {e.clock_offset_ns for e in ahead.events.values()}
    finally:
        ahead.close()

    assert all(abs(offset - 3_600_000_000_000) < 1_000_000_000 for offset in offsets)


def test_one_agent_a_node(bench: Bench) -> None:
    """A second one on the same state would number events twice: it says so and ends."""
    agent = bench.agent()
    until(lambda: bench.receiver.of("heartbeat"))
    second = bench.agent()
    _, errors = second.communicate(timeout=30)
    bench.stop(agent)

    assert (1, True) == (second.returncode, "another agent uses" in errors)


def test_spools_of_another_version_are_left_alone(bench: Bench) -> None:
    """An older recorder's lines of JSON and a newer one's slots: said once, and neither read nor deleted."""
    bench.spool.mkdir()
    older = bench.spool / f"trainer-1-{'0' * 32}.000001.spool"
    newer = bench.spool / f"trainer-1-{'1' * 32}.000001.spool"
    older.write_bytes(pack({"t": "head", "v": 1, "job": "old"}))
    newer.write_bytes(WORDS.pack(MAGIC, 3, 1, 0, 0, 0, 0, COMMIT))
    agent = bench.agent()
    bench.trainer(START + "ett.step(0); ett.end()").communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    errors = bench.stop(agent)

    assert ["is written in version 1", "is written in version 3"] == sorted(
        line.partition("0001 ")[2] or line.split(" ", 2)[2].partition(",")[0]
        for line in errors.splitlines()
        if "is written in" in line
    )
    assert older.exists()
    assert newer.exists()
    assert {"j"} == {e.job for e in bench.receiver.of("attempt_start")}


def test_state_of_an_agent_of_another_version(bench: Bench) -> None:
    """It was in the middle of a spool that this one does not read: that is dropped, and all else goes on."""
    name = f"trainer-1-{'0' * 32}"
    state = {"name": name, "head": {"v": 1, "kind": "trainer"}, "position": [1, 500]}
    outbox = Outbox(str(bench.spool / "agent"), limit_bytes=1 << 20)
    outbox.commit([{"type": "heartbeat", "ts": time.time_ns(), "jobs": []}], {"traces": {name: state}}, 0)
    outbox.close()
    for turn in (1, 2):
        agent = bench.agent()
        bench.trainer(START.replace("'a'", f"'{turn}'") + "ett.step(0); ett.end()").communicate(timeout=30)
        until(lambda: len(bench.receiver.of("attempt_end")) == turn)  # noqa: B023 - called at once
        bench.stop(agent)

    kept = Outbox(str(bench.spool / "agent"), limit_bytes=1 << 20)
    assert name not in kept.state["traces"]
    kept.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--url", "ftp://x"), "must be http(s)"),
        (("--heartbeat", "0"), "--heartbeat"),
        (("--token-file", "/no/such/file"), "--token-file"),
    ],
)
def test_wrong_options_are_named(bench: Bench, options: tuple[str, ...], message: str) -> None:
    """The message says which, and the status is argparse's."""
    agent = bench.spawn(sys.executable, "-m", "ett_collector.agent.main", *options)
    _, errors = agent.communicate(timeout=30)

    assert (2, True) == (agent.returncode, message in errors)


def test_bodies_are_small(bench: Bench) -> None:
    """Alike events are sent in the bulk form: a window costs tens of bytes."""
    bench.trainer(
        START
        + "for n in range(3000):\n ett.step(n)\n if n % 3 == 0:\n  with ett.phase('evaluation'): pass\nett.end()"
    ).communicate(timeout=30)
    agent = bench.agent()
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    sent = sum(len(body) for body in bench.receiver.bodies)
    assert sent / len(bench.receiver.events) < 60


def test_trainer_in_another_pid_namespace(bench: Bench) -> None:
    """In a container a pid says nothing to the agent: the lock on the spool tells life and death."""
    inside = bench.environ()
    code = START + "import sys\nprint('up', flush=True)\nsys.stdin.readline()"
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    trainer = subprocess.Popen(
        command, env=inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    bench.running.append(trainer)
    assert trainer.stdout is not None
    if not trainer.stdout.readline():
        pytest.skip("a pid namespace of one's own needs root")
    agent = bench.agent()
    until(lambda: [e for e in bench.receiver.of("heartbeat") if e.body["jobs"]])
    assert [] == bench.receiver.of("attempt_end")
    subprocess.run(["pkill", "-9", "-P", str(trainer.pid)], check=True)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)

    assert "failed" == bench.receiver.of("attempt_end")[0].body["outcome"]


def test_agent_stops_by_sigint_too(bench: Bench) -> None:
    """Ctrl-C in a terminal is a clean end."""
    agent = bench.agent()
    until(lambda: bench.receiver.of("heartbeat"))
    agent.send_signal(signal.SIGINT)

    assert 0 == agent.wait(timeout=30)
