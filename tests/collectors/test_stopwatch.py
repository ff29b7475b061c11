"""What stamps become: spans, steps and waits, with the wall clock set at the worst moments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ett_collector.agent.stopwatch import Stopwatch
from ett_collector.slots import ANCHOR, BEGIN, CLOSE, NONE, OPEN, STEP, VOID, WAIT, WAITED

if TYPE_CHECKING:
    from ett_collector.agent.tail import Raw

S = 1_000_000_000
ANCHOR_0 = 1_764_000_000 * S
NAMES: list[Raw] = [
    {"t": "name", "number": 1, "fields": {"phase": "evaluation", "work_key": "k"}},
    {"t": "name", "number": 2, "fields": {"phase": "upload", "overlapped": True}},
    {"t": "name", "number": 3, "fields": {"phase": "KeyError"}},
]


def slot(kind: int, at: float, *words: int) -> Raw:
    """The words of a slot, `at` s on the monotonic clock."""
    return (kind, int(at * S), *words, *[0] * (5 - len(words)))


def opened(number: int, at: float, name: int = 1) -> Raw:
    """A span begins."""
    return slot(OPEN, at, number, name, NONE)


def closed(number: int, at: float, begun: float, name: int = 1, why: int = 0) -> Raw:
    """A span ends."""
    return slot(CLOSE, at, number, name, NONE, int(begun * S), why)


def step(n: int, at: float) -> Raw:
    """A mark."""
    return slot(STEP, at, n, NONE)


def take(*raws: Raw, watch: Stopwatch | None = None) -> list[dict[str, Any]]:
    """The records, with the state kept as JSON in between, and stamps in s since the first anchor."""
    watch = watch or Stopwatch("t")
    out = []
    for raw in (slot(ANCHOR, 0, ANCHOR_0), *NAMES, *raws):
        record = watch.take(dict(raw) if isinstance(raw, dict) else raw)
        watch = Stopwatch(**json.loads(json.dumps(watch.to_json())))
        if record is not None:
            out.append(
                {k: (v - ANCHOR_0) / S if k in ("start", "end", "at") else v for k, v in record.items()}
            )
    return out


def test_a_span_and_its_names() -> None:
    """Its begin and its end say the same; an exception is named."""
    begin, end = take(opened(7, 10), closed(7, 12, 10, why=3))

    fields = {"phase": "evaluation", "work_key": "k", "span": "t-7", "start": 10}
    assert {"t": "open", **fields} == begin
    assert {"t": "phase", **fields, "end": 12, "attrs": {"raised": "KeyError"}} == end


def test_a_span_whose_begin_is_missing() -> None:
    """The oldest file was dropped: the end alone says all that matters, and blocks nothing."""
    (end, mark) = take(closed(7, 12, 10), step(1, 13))

    assert ("evaluation", 10, 12, 0) == (end["phase"], end["start"], end["end"], mark["blocked"])


def test_attributes_come_before_their_span() -> None:
    """They are of one span only."""
    first, _, second = take(
        {"t": "attrs", "span": 7, "attrs": {"files": 2}}, opened(7, 10), closed(7, 12, 10), opened(8, 12)
    )

    assert ({"files": 2}, None) == (first["attrs"], second.get("attrs"))


@pytest.mark.parametrize("jump", [-3600 * S, 3600 * S])
def test_a_jump_inside_a_span_changes_no_length(jump: int) -> None:
    """The span keeps its monotonic length and tells the jump; what begins after it has the new time."""
    _, end, later = take(opened(7, 10), slot(ANCHOR, 11, ANCHOR_0 + jump), closed(7, 12, 10), opened(8, 13))

    assert (10, 12, {"clock_jump_ns": jump}) == (end["start"], end["end"], end["attrs"])
    assert 13 + jump / S == later["start"]


@pytest.mark.parametrize("jump", [-3600 * S, 3600 * S])
def test_a_jump_changes_no_stamp_of_the_nodes_clock(jump: int) -> None:
    """Spans, steps, waits and notes stay where they are on monotonic time; the jump is told all the same."""
    told: list[Raw] = [
        opened(7, 10),
        step(0, 10.5),
        slot(ANCHOR, 11, ANCHOR_0 + jump),
        closed(7, 12, 10),
        slot(WAIT, 12),
        slot(WAITED, 14, 12 * S),
        step(1, 15),
        {"t": "checkpoint", "mono": 16 * S},
        {"t": "phase", "start": 17 * S + ANCHOR_0 + jump, "end": 18 * S + ANCHOR_0 + jump},
    ]
    *_, span, wait, stall, mark, saved, elsewhere = take(*told, watch=Stopwatch("t", ANCHOR_0))

    assert (10, 12, {"clock_jump_ns": jump}) == (span["start"], span["end"], span["attrs"])
    assert (12, 12, 14, 10.5, 15) == (wait["at"], stall["start"], stall["end"], mark["start"], mark["end"])
    assert (16, 17, 18) == (saved["at"], elsewhere["start"], elsewhere["end"])


def test_a_span_of_before_the_clock_was_set() -> None:
    """It was measured by the anchor that it names, and noted after a new one."""
    named = {"t": "phase", "start": 9 * S + ANCHOR_0, "end": 10 * S + ANCHOR_0, "anchor": ANCHOR_0}
    told: list[Raw] = [slot(ANCHOR, 11, ANCHOR_0 + 3600 * S), named]
    (span,) = take(*told, watch=Stopwatch("t", ANCHOR_0))

    assert {"t": "phase", "start": 9, "end": 10} == span


def test_a_small_step_of_the_clock_is_followed_and_not_told() -> None:
    """NTP set the clock by 0.2 s."""
    _, end = take(opened(7, 10), slot(ANCHOR, 11, ANCHOR_0 + S // 5), closed(7, 12, 10))

    assert (12, None) == (end["end"], end.get("attrs"))


def test_steps_know_what_of_them_was_a_phase() -> None:
    """Phases of two threads that overlap block once; what goes on beside training blocks nothing."""
    marks = take(
        step(0, 10),
        opened(7, 11),
        opened(8, 12),
        opened(9, 12, name=2),
        closed(7, 13, 11),
        closed(8, 14, 12),
        closed(9, 19, 12, name=2),
        step(1, 20),
    )

    assert (10, 20, 3 * S, 0) == tuple(marks[-1][key] for key in ("start", "end", "blocked", "wait"))


def test_waits_of_a_step() -> None:
    """One inside another counts once, and a phase inside a wait is no wait."""
    marks = take(
        step(0, 10),
        slot(WAIT, 11),
        slot(WAIT, 11.2),
        slot(WAITED, 11.4, int(11.2 * S)),
        opened(7, 11.4),
        closed(7, 11.5, 11.4),
        slot(WAITED, 11.6, 11 * S),
        step(1, 12),
    )

    assert ["wait", "waited"] == [one["t"] for one in marks if one["t"].startswith("wait")]
    assert (S // 2, S // 10) == (marks[-1]["wait"], marks[-1]["blocked"])


def test_a_long_wait_is_a_span() -> None:
    """It stands where it was, and is not counted again with the step."""
    *_, stall, mark = take(step(0, 10), slot(WAIT, 11), slot(WAITED, 13, 11 * S), step(1, 14))

    assert ("data_stall", 11, 13) == (stall["phase"], stall["start"], stall["end"])
    assert (0, 2 * S) == (mark["wait"], mark["blocked"])


def test_where_the_first_step_begins() -> None:
    """Where it was said, else with the last phase before it, else with the first wait, else nowhere."""
    phase, wait = (opened(7, 8), closed(7, 9, 8)), (slot(WAIT, 8.5), slot(WAITED, 9.2, int(8.5 * S)))

    assert 9.5 == take(*phase, slot(BEGIN, 9.5, 0, NONE), step(0, 11))[-1]["start"]
    assert 9 == take(*phase, step(0, 11))[-1]["start"]
    assert 8.5 == take(*wait, step(0, 11))[-1]["start"]
    assert 11 == take(step(0, 11))[-1]["start"]


def test_what_is_open_where_records_are_missing_is_forgotten() -> None:
    """Its end may be among them: it must not block for ever."""
    watch = Stopwatch("t")
    take(step(0, 5), opened(7, 6), slot(WAIT, 7), watch=watch)
    watch.take(step(0, 5))
    watch.take(opened(7, 6))
    watch.skip()
    first, second = watch.take(step(50, 100)), watch.take(step(51, 101))

    assert first is not None and second is not None  # noqa: PT018 - for mypy
    assert (0, S, 0) == (first["end"] - first["start"], second["end"] - second["start"], second["blocked"])


def test_what_is_not_known_says_nothing() -> None:
    """Void slots, and kinds of a newer recorder."""
    assert [] == take(slot(VOID, 0), slot(99, 1))
