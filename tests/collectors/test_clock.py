"""The anchor of a process whose wall clock is set while it runs."""

from __future__ import annotations

import pytest

from ett_collector import clock as clock_module
from ett_collector.clock import Clock

SECOND = 1_000_000_000


class Hands:
    """The two clocks of a machine, set by the test."""

    def __init__(self) -> None:
        self.wall = 1_764_000_000 * SECOND
        self.mono = 500 * SECOND
        self.delays: list[int] = []

    def tick(self, ns: int) -> None:
        """Time passes."""
        self.wall += ns
        self.mono += ns

    def read_mono(self) -> int:
        """The monotonic clock; the process may be put aside right after."""
        now = self.mono
        self.tick(self.delays.pop(0) if self.delays else 0)
        return now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """The clocks that `Clock` reads."""
    hands = Hands()
    monkeypatch.setattr(clock_module, "time_ns", lambda: hands.wall)
    monkeypatch.setattr(clock_module, "monotonic_ns", hands.read_mono)
    return hands


def test_anchor_is_wall_minus_monotonic(hands: Hands) -> None:
    """While nobody sets the clock it stays."""
    clock = Clock()
    hands.tick(3 * SECOND)

    assert (False, hands.wall - hands.mono) == (clock.follow(), clock.anchor)


@pytest.mark.parametrize("jump", [-3600 * SECOND, 3600 * SECOND, SECOND // 5])
def test_anchor_follows_a_clock_that_is_set(hands: Hands, jump: int) -> None:
    """Once: the next look finds the clocks in step."""
    clock = Clock()
    hands.wall += jump

    assert (True, hands.wall - hands.mono) == (clock.follow(), clock.anchor)
    assert clock.follow() is False


def test_reading_two_clocks_is_no_jump(hands: Hands) -> None:
    """A few milliseconds between the clocks are a busy machine."""
    clock = Clock()
    before = clock.anchor
    hands.wall += 5_000_000

    assert (False, before) == (clock.follow(), clock.anchor)


def test_a_process_that_is_put_aside_between_two_readings_sees_no_jump(hands: Hands) -> None:
    """Half a second lies between one monotonic reading and the wall's: the tightest of several pairs counts."""
    clock = Clock()
    before = clock.anchor
    hands.delays = [0, SECOND // 2, 0, 0, 0, 0, 0, 0, 0]

    assert (False, before) == (clock.follow(), clock.anchor)
