"""The node's clock: it stays while the machine runs, whatever becomes of the wall clock."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ett_collector.agent import offset as offset_module
from ett_collector.agent.nodeclock import NodeClock
from ett_collector.agent.offset import ClockOffset

if TYPE_CHECKING:
    import pytest

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


class Measured:
    """The offset of a node's clock whose wall clock, and the service's, are set by the test. In s, by trips of 1 ms."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.offset = ClockOffset()
        self.offset.resume(state or {}, of_node=400 * S)
        self.wall_ahead, self.service_ahead = 0.0, 0.0

    def at(self, mono: float) -> float:
        """The estimate after a round trip at that monotonic time; a service that is right is 100 s behind the node."""
        sent, got = int(mono * S), int(mono * S) + S // 1000
        wall = int((400 + mono + self.wall_ahead) * S)
        self.offset.sample(wall, sent, got, int((300 + mono + self.service_ahead) * S) + S // 2000)
        assert self.offset.value is not None
        return self.offset.value / S


def test_the_offset_is_that_of_the_nodes_clock() -> None:
    """Whoever sets the wall clock, it stays."""
    measured = Measured()
    assert 100 == measured.at(10)
    measured.wall_ahead = 3600
    assert 100 == measured.at(11)


def test_a_service_whose_clock_is_set_for_a_while_is_not_followed() -> None:
    """Also by an agent that begins meanwhile; one that says so for ten minutes is right."""
    measured = Measured()
    measured.at(10)
    measured.service_ahead = 3600
    assert 100 == measured.at(11)
    measured = Measured(json.loads(json.dumps(measured.offset.to_json())))
    measured.service_ahead = 3600
    assert [100, 100] == [measured.at(12), measured.at(600)]
    measured.service_ahead = 0
    assert 100 == measured.at(620)
    measured.service_ahead = -0.2
    assert [100, 100, 100.2] == [measured.at(630), measured.at(1000), measured.at(1231)]


def test_a_process_that_is_put_aside_between_two_clocks_has_not_slept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a second lies between the readings of one pair."""
    mono = iter([900 * S + S // 2, 900 * S, 900 * S, 900 * S])
    clocks = SimpleNamespace(
        CLOCK_BOOTTIME=7, clock_gettime_ns=lambda _: 1000 * S, monotonic_ns=mono.__next__
    )
    monkeypatch.setattr(offset_module, "time", clocks)
    assert 100 * S == offset_module.asleep_ns()


def test_a_machine_that_slept_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its monotonic clock stood for an hour, so that its own clock is behind by it."""
    measured = Measured()
    measured.at(10)
    before = offset_module.asleep_ns()
    monkeypatch.setattr(offset_module, "asleep_ns", lambda: before + 3600 * S)
    measured.service_ahead = 3600
    assert 100 - 3600 == measured.at(11)
