"""The estimate of a node's clock offset."""

from __future__ import annotations

from ett_collector.agent.offset import AGE_NS, ClockOffset

MS = 1_000_000
T = 1_764_000_000_000 * MS


def sample(clock: ClockOffset, at: int, trip: int, offset: int, *, back: int | None = None) -> int | None:
    """A round trip of `trip` ns at monotonic `at` by a node that is `offset` ahead; `back`: way back, ns."""
    mono = 1000 * MS + at
    said = T + at + trip - (trip // 2 if back is None else back)
    clock.sample(T + at + offset, mono, mono + trip, said)
    return clock.value


def test_no_offset_is_zero_whatever_the_trip() -> None:
    """As long as 0 lies within the round trip nothing speaks for an offset: no trembling seams."""
    clock = ClockOffset()

    assert [0, 0, 0] == [sample(clock, i, (5 + i) * MS, 0, back=i * MS // 2) for i in range(3)]


def test_offset_by_the_shortest_trip() -> None:
    """The tightest interval decides, and its middle is the estimate."""
    clock = ClockOffset()
    sample(clock, 0, 100 * MS, 3000 * MS, back=0)

    assert 3000 * MS == sample(clock, 1, 2 * MS, 3000 * MS)
    assert 3000 * MS == sample(clock, 2, 50 * MS, 3000 * MS, back=0)


def test_estimate_is_kept_while_it_fits() -> None:
    """A later sample whose interval holds the estimate does not move it."""
    clock = ClockOffset()
    first = sample(clock, 0, 4 * MS, 500 * MS)

    assert first == sample(clock, 1, 3 * MS, 501 * MS)


def test_clock_that_was_set_is_measured_anew() -> None:
    """Old samples say nothing about a clock that was set."""
    clock = ClockOffset()
    sample(clock, 0, 1 * MS, 5000 * MS)

    assert 0 == sample(clock, 1, 10 * MS, 0)


def test_old_samples_are_left_out() -> None:
    """A clock drifts: a short trip of long ago does not decide for ever."""
    clock = ClockOffset()
    sample(clock, 0, 1 * MS, 500 * MS)

    assert 507 * MS == sample(clock, AGE_NS + 1, 6 * MS, 507 * MS)
