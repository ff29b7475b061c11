"""What records of one process become on the wire, and how attempts end."""

from __future__ import annotations

from typing import Any

from ett_collector.agent.attempts import Attempt
from ett_collector.agent.trace import Trace

S = 1_000_000_000
HEAD = {
    "t": "head", "v": 2, "kind": "trainer", "id": "f" * 32, "at": 100 * S, "pid": 7, "ticks": 9, "boot": "b",
    "pidns": "n", "began": 99 * S, "job": "j", "attempt": "a", "rank": 0, "world_size": 2, "gpus": None,
    "gpus_on_node": 1, "allocated": None, "launched_at": None, "released_between": None,
    "facts": {"team": "ads"}, "labels": None,
}  # fmt: skip


def take(trace: Trace, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of records, without the identity that all have."""
    events = [event for record in records for event in trace.take(record, 10 * S)]
    assert all(
        ("j", "a", 0) == (event.pop("job"), event.pop("attempt"), event.pop("rank")) for event in events
    )
    return events


def opened(name: str, start: int) -> dict[str, Any]:
    """An `open` record."""
    return {"t": "open", "phase": name, "span": f"s-{start}", "start": start * S}


def test_short_phase_is_told_once() -> None:
    """A phase that ends before the agent looks again needs no `phase_open`."""
    trace = Trace("t", HEAD)

    assert [] == take(trace, opened("compile_cold", 100))
    done = take(
        trace, {"t": "phase", "phase": "compile_cold", "span": "s-100", "start": 100 * S, "end": 101 * S}
    )
    assert [
        {"type": "phase", "phase": "compile_cold", "span": "s-100", "start": 100 * S, "end": 101 * S}
    ] == done
    assert [] == trace.tell_open(102 * S, 10 * S)


def test_open_phase_is_told_once() -> None:
    """It is open at the end of a look: the service sees it, once."""
    trace = Trace("t", HEAD)
    take(trace, opened("compile_cold", 100))

    assert ["phase_open"] == [e["type"] for e in trace.tell_open(101 * S, 10 * S)]
    assert [] == Trace.from_json(trace.to_json()).tell_open(102 * S, 10 * S)


def test_step_in_flight_is_told_when_it_is_old() -> None:
    """A step longer than a window is shown as in flight; the `steps` event that covers it follows at once."""
    trace = Trace("t", HEAD)
    take(trace, {"t": "begin", "n": 5, "at": 100 * S})

    assert [] == trace.tell_open(109 * S, 10 * S)
    assert [("step_new_data", 5)] == [(e["phase"], e["step"]) for e in trace.tell_open(111 * S, 10 * S)]
    mark = {"t": "step", "n": 5, "start": 100 * S, "end": 112 * S, "wait": 0, "blocked": 0}
    assert [(5, 5)] == [(e["first"], e["last"]) for e in take(trace, mark)]


def test_long_wait_is_told_while_it_lasts() -> None:
    """A data loader that hangs is seen as such; the same span closes when the input comes after all."""
    trace = Trace("t", HEAD)
    take(trace, {"t": "wait", "at": 100 * S})

    (opened_wait,) = trace.tell_open(111 * S, 10 * S)
    (done,) = take(
        trace, {"t": "phase", "phase": "data_stall", "span": "x", "start": 100 * S, "end": 112 * S}
    )

    assert ("phase_open", "data_stall") == (opened_wait["type"], opened_wait["phase"])
    assert (opened_wait["span"], 112 * S) == (done["span"], done["end"])
    assert [] == trace.die(120 * S, {}, inferred=False)


def test_word_that_is_no_outcome() -> None:
    """The attempt ends all the same, and what was said is kept."""
    trace = Trace("t", HEAD)
    take(trace, {"t": "end", "outcome": "success", "at": 105 * S})

    assert {"outcome": "unknown", "error": "outcome success: "} == {
        name: (trace.finished or {})[name] for name in ("outcome", "error")
    }


def test_death_closes_what_is_open() -> None:
    """Phases, the step in flight and the wait end at the death, aborted; the window before them is kept."""
    trace = Trace("t", HEAD)
    marks = [
        {"t": "step", "n": n, "start": (100 + n) * S, "end": (101 + n) * S, "wait": 0, "blocked": 0}
        for n in range(3)
    ]
    take(
        trace,
        *marks,
        {"t": "begin", "n": 3, "at": 103 * S},
        {"t": "wait", "at": 103 * S + 1},
        opened("checkpoint_save_block", 104),
    )

    events = trace.die(106 * S, {"signal": 9}, inferred=False)

    assert [("steps", None), ("phase", True), ("phase", True), ("phase", True)] == [
        (e["type"], e.get("aborted")) for e in events
    ]
    assert [("checkpoint_save_block", 104), ("step_new_data", 103), ("data_stall", 103)] == [
        (e["phase"], e["start"] // S) for e in events[1:]
    ]
    assert {106 * S} == {e["end"] for e in events[1:]}
    assert {"at": 106 * S, "signal": 9, "clean": False} == {
        k: v for k, v in (trace.finished or {}).items() if k in ("at", "signal", "clean")
    }


def test_death_is_never_before_the_last_word() -> None:
    """What the process said after the moment of death as guessed proves the guess wrong."""
    trace = Trace("t", HEAD)
    take(trace, opened("evaluation", 200))

    assert 200 * S == trace.die(150 * S, {}, inferred=True)[0]["end"]


def test_what_is_open_at_the_trainers_own_end_is_told_open() -> None:
    """It said that it is over in the middle of a step: no closing is made up."""
    trace = Trace("t", HEAD)
    take(trace, {"t": "begin", "n": 3, "at": 103 * S})

    events = take(trace, {"t": "end", "outcome": "failed", "error": "x", "at": 105 * S})

    assert [("phase_open", 3)] == [(e["type"], e["step"]) for e in events]
    assert [] == trace.die(107 * S, {"exit_code": 1}, inferred=False)


def test_records_of_a_newer_recorder_are_passed_over() -> None:
    """An agent meets trainers with another version of the package."""
    assert [] == take(Trace("t", HEAD), {"t": "hologram", "at": 1}, {"at": 2})


def end(*facts: dict[str, Any]) -> dict[str, Any] | None:
    """`attempt_end` of a node whose processes ended like this."""
    attempt = Attempt("j", "a", trainers=len(facts))
    for rank, one in enumerate(facts):
        attempt.leave({"rank": rank, "pid": rank, "ticks": 1, "launcher": False, **one})
    found = attempt.end(10_000 * S, "n")
    return {k: v for k, v in found.items() if k not in ("type", "job", "attempt")} if found else None


def test_all_completed() -> None:
    """The release is the last process's end."""
    said = {"outcome": "completed"}

    assert {"ts": 9 * S, "outcome": "completed"} == end({**said, "at": 8 * S}, {**said, "at": 9 * S})


def test_earliest_bad_end_is_the_evidence() -> None:
    """Rank 1 was killed, rank 0 stumbled over it; the release is the last one's."""
    found = end(
        {"at": 9 * S, "clean": True, "error": "connection reset"}, {"at": 8 * S, "clean": False, "signal": 9}
    )

    expected = {"ts": 9 * S, "outcome": "failed", "signal": 9, "failed_rank": 1, "failed_node": "n"}
    assert expected == found


def test_decision_explains_the_deaths_around_it() -> None:
    """A trainer that was told to make room said so; the others were killed."""
    found = end({"at": 8 * S, "clean": False, "signal": 15}, {"at": 9 * S, "outcome": "preempted"})

    assert {"ts": 9 * S, "outcome": "preempted"} == found


def test_clean_exit_without_a_word_is_unknown_unless_its_status_is_known() -> None:
    """The interpreter ended in good order: that may have been `sys.exit(1)`."""
    assert {"ts": 8 * S, "outcome": "unknown"} == end({"at": 8 * S, "clean": True})
    assert {"ts": 8 * S, "outcome": "completed"} == end({"at": 8 * S, "clean": True, "exit_code": 0})
    assert "failed" == (end({"at": 8 * S, "clean": True, "exit_code": 1}) or {})["outcome"]


def test_attempt_start_unites_processes_of_a_node() -> None:
    """The first process tells it; another one that began earlier tells it again."""
    attempt = Attempt("j", "a")
    first = attempt.join(Trace("t", HEAD), "n")
    later = attempt.join(Trace("u", {**HEAD, "rank": 1, "began": 99 * S + 5}), "n")
    earlier = attempt.join(Trace("v", {**HEAD, "rank": 2, "began": 98 * S}), "n")

    start = {
        "type": "attempt_start",
        "job": "j",
        "attempt": "a",
        "ts": 99 * S,
        "nodes": ["n"],
        "world_size": 2,
        "gpus_by_node": {"n": 1},
    }
    assert [{"type": "job", "job": "j", "team": "ads"}, start] == first
    assert [] == later
    assert [{**start, "ts": 98 * S}] == earlier
