"""Step marks become step windows."""

from __future__ import annotations

from typing import Any

from ett_collector.agent.windows import StepMarks

S = 1_000_000_000


def windows(marks: list[dict[str, Any]], length_s: int = 10) -> list[dict[str, Any]]:
    """The windows of some marks, through JSON after each of them."""
    book, out = StepMarks(), []
    for mark in marks:
        out += book.take(mark, length_s * S)
        book = StepMarks.from_json(book.to_json())
    return out + book.close()


def mark(n: int, start: float, end: float, **more: int) -> dict[str, Any]:
    """A mark with times in s."""
    return {
        "t": "step",
        "n": n,
        "start": int(start * S),
        "end": int(end * S),
        "wait": 0,
        "blocked": 0,
        **more,
    }


def spans(found: list[dict[str, Any]]) -> list[tuple[int, int, float, float]]:
    """First, last, start and end in s."""
    return [(w["first"], w["last"], w["start"] / S, w["end"] / S) for w in found]


def test_first_step_stands_alone_and_windows_are_ten_seconds() -> None:
    """25 steps of 1 s: the first, then windows that close at 10 s, then the rest."""
    found = windows([mark(n, n, n + 1) for n in range(25)])

    assert [(0, 0, 0, 1), (1, 10, 1, 11), (11, 20, 11, 21), (21, 24, 21, 25)] == spans(found)


def test_slow_step_stands_alone() -> None:
    """More than three times the usual length."""
    times = [0, 1, 2, 3, 4, 5, 8.5, 9.5]

    found = windows([mark(n, times[n], times[n + 1]) for n in range(7)])

    assert [(0, 0, 0, 1), (1, 4, 1, 5), (5, 5, 5, 8.5), (6, 6, 8.5, 9.5)] == spans(found)


def test_phase_between_steps_ends_a_window() -> None:
    """The step with the phase begins the next window; the phase is no part of the slowest step."""
    marks = [mark(0, 0, 1), mark(1, 1, 2), mark(2, 2, 3), mark(3, 3, 9, blocked=5 * S), mark(4, 9, 10)]

    found = windows(marks)

    assert [(0, 0, 0, 1), (1, 2, 1, 3), (3, 4, 3, 10)] == spans(found)
    assert S == found[-1]["slowest"]


def test_waits_are_summed() -> None:
    """The waits of a window's steps, never more than the window; a step's own time is without them."""
    found = windows([mark(0, 0, 1), mark(1, 1, 2, wait=S // 4), mark(2, 2, 3, wait=S // 2)])

    assert "data_wait" not in found[0]
    assert (3 * S // 4, 3 * S // 4) == (found[1]["data_wait"], found[1]["slowest"])


def test_numbers_that_jump_end_a_window() -> None:
    """Backwards, ahead and twice the same: facts for the service, each a window of its own."""
    found = windows([mark(n, i, i + 1) for i, n in enumerate([5, 6, 7, 7, 3, 4, 9])])

    assert [(5, 5), (6, 7), (7, 7), (3, 4), (9, 9)] == [(w["first"], w["last"]) for w in found]


def test_samples_are_a_cursor() -> None:
    """A window runs from the samples before it to those after it; the first has no known beginning."""
    found = windows([mark(n, n, n + 1, samples=100 * (n + 1)) for n in range(4)])

    assert "cursor_start" not in found[0]
    assert (100, 400) == (found[1]["cursor_start"], found[1]["cursor_end"])


def test_samples_that_do_not_grow_are_no_cursor() -> None:
    """A batch size given by mistake would make every later step look repeated."""
    found = windows([mark(n, n, n + 1, samples=32) for n in range(4)])

    assert not [w for w in found if "cursor_end" in w]
