"""Stamps of a process whose wall clock is set while it runs."""

from __future__ import annotations

import pytest

from ett_collector import clock as clock_module
from ett_collector.clock import Clock, span_end

SECOND = 1_000_000_000


class Hands:
    """The two clocks of a machine, set by the test."""

    def __init__(self) -> None:
        self.wall = 1_764_000_000 * SECOND
        self.mono = 500 * SECOND

    def tick(self, ns: int) -> None:
        """Time passes."""
        self.wall += ns
        self.mono += ns


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """The clocks that `Clock` reads."""
    hands = Hands()
    monkeypatch.setattr(clock_module, "time_ns", lambda: hands.wall)
    monkeypatch.setattr(clock_module, "monotonic_ns", lambda: hands.mono)
    return hands


def test_stamps_are_wall_time(hands: Hands) -> None:
    """Without a jump a stamp is the wall clock, and a span as long as the monotonic clock says."""
    clock = Clock()
    start = clock.now()
    hands.tick(3 * SECOND)

    assert (hands.wall, 0) == span_end(start, clock.now())


@pytest.mark.parametrize("jump", [-3600 * SECOND, 3600 * SECOND])
def test_a_jump_inside_a_span_changes_no_length(hands: Hands, jump: int) -> None:
    """The span keeps its monotonic length and tells the jump; what begins after it has the new time."""
    clock = Clock()
    start = clock.now()
    hands.tick(SECOND)
    hands.wall += jump
    hands.tick(SECOND)
    now = clock.now()

    assert (start[0] + 2 * SECOND, jump) == span_end(start, now)
    assert hands.wall == now[0]


def test_reading_two_clocks_is_no_jump(hands: Hands) -> None:
    """A few milliseconds between the clocks are a busy machine."""
    clock = Clock()
    start = clock.now()
    hands.tick(SECOND)
    hands.wall += 5_000_000

    assert start[0] + SECOND == clock.now()[0]


def test_a_small_step_is_followed_and_not_told(hands: Hands) -> None:
    """NTP set the clock by 0.2 s: later stamps are right, the span's length is too."""
    clock = Clock()
    start = clock.now()
    hands.tick(SECOND)
    hands.wall += SECOND // 5
    now = clock.now()

    assert (start[0] + SECOND, 0) == span_end(start, now)
    assert hands.wall == now[0]
