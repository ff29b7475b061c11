"""The node's clock: it stays while the machine runs, whatever becomes of the wall clock."""

from __future__ import annotations

import time
from typing import Any

from ett_collector.agent.nodeclock import NodeClock
from ett_collector.agent.offset import ClockOffset

S = 1_000_000_000
HEAD: dict[str, Any] = {
    "boot": "b",
    "anchor": 500 * S,
    "began": 510 * S,
    "allocated": None,
    "launched_at": 509 * S,
}


def test_it_is_kept_for_the_boot() -> None:
    """An agent that comes back goes on with the clock of the one before; after a boot a new one begins."""
    first = NodeClock.of("b", {})
    assert first == NodeClock.of("b", first.to_json())
    assert abs(first.now() - time.time_ns()) < S
    assert NodeClock("b", 7) == NodeClock.of("b", {"boot": "b", "anchor": 7})
    assert NodeClock("b", 7) != NodeClock.of("another", {"boot": "b", "anchor": 7})
    assert NodeClock("", 7) != NodeClock.of("", {"boot": "", "anchor": 7})


def test_a_head_that_was_written_on_a_wall_clock_that_was_ahead() -> None:
    """What it says happened when it did; what nobody told stays untold."""
    head = NodeClock("b", 400 * S).adopt(HEAD)
    assert (410 * S, None, 409 * S) == (head["began"], head["allocated"], head["launched_at"])


def test_heads_of_another_boot_or_an_older_recorder_stay() -> None:
    clock = NodeClock("b", 400 * S)
    older = {name: value for name, value in HEAD.items() if name != "anchor"}
    assert older == clock.adopt(older)
    foreign = {**HEAD, "boot": "another"}
    assert foreign == clock.adopt(foreign)
    assert not NodeClock("", 0).knows({"boot": ""})


def test_the_offset_is_that_of_the_nodes_clock() -> None:
    """Set the wall clock by an hour, and it stays; 0.1 s more of monotonic time are no reason either."""
    offset = ClockOffset()
    offset.of_node = 400 * S
    offset.sample(510 * S, 10 * S, 10 * S + 1000, 310 * S)
    before = offset.value
    offset.sample(510 * S + S // 10 + 3600 * S, 10 * S + S // 10, 10 * S + S // 10 + 1000, 310 * S + S // 10)

    assert before == offset.value
    assert before is not None
    assert 100 * S <= before <= 100 * S + 1000
