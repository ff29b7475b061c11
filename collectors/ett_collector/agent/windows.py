"""From single step marks to step windows: a few events a minute instead of ten a second.

The first step of an attempt stands alone, as does a step of over three times the usual length; a window ends
where a phase lies between two steps, where the numbers jump, and when it is `length_ns` long. Facts are only
summed here; what a step was worth is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

SLOW = 3  # times the usual step
USUAL_OF = 31  # recent steps
USUAL_FROM = 3  # before so many are known, no step is slow


@dataclass
class Window:
    """Consecutive complete steps. Times ns; `growing` while the samples consumed grow with each step."""

    first: int
    last: int
    start: int
    end: int
    wait: int
    slowest: int
    cursor_start: int | None
    cursor_end: int | None
    growing: bool


@dataclass
class StepMarks:
    """The steps of one trainer: the open window and what is needed to judge the next mark."""

    window: Window | None = None
    usual: list[int] = field(default_factory=list)
    last: int | None = None
    cursor: int | None = None

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> StepMarks:
        """The state of `to_json` back."""
        window = state["window"]
        return cls(
            None if window is None else Window(**window), state["usual"], state["last"], state["cursor"]
        )

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self)

    def take(self, mark: dict[str, Any], length_ns: int) -> list[dict[str, Any]]:
        """Take one `step` record; the `steps` events (without identity) of windows that it closed."""
        out: list[dict[str, Any]] = []
        n, start, end = mark["n"], mark["start"], mark["end"]
        net = max(0, end - start - mark["wait"] - mark["blocked"])
        alone = self.last is None or (len(self.usual) >= USUAL_FROM and net > SLOW * median(self.usual))
        window = self.window
        if window is not None and (alone or mark["blocked"] or n != window.last + 1 or start != window.end):
            out += self.close()
        if self.last is not None and n != self.last + 1:
            self.cursor = None  # the loop went back or ahead: what it had consumed before says nothing
        samples = mark.get("samples")
        growing = samples is not None and self.cursor is not None and samples > self.cursor
        window = self.window
        if window is None:
            self.window = window = Window(n, n, start, end, mark["wait"], net, self.cursor, samples, growing)
        else:
            window.last, window.end, window.cursor_end = n, end, samples
            window.wait += mark["wait"]
            window.slowest = max(window.slowest, net)
            window.growing = window.growing and growing
        self.last, self.cursor = n, samples
        self.usual = [*self.usual[1 - USUAL_OF :], net]
        if alone or mark.get("jump") or window.end - window.start >= length_ns:
            out += self.close()
        return out

    def close(self) -> list[dict[str, Any]]:
        """Close the open window, if any."""
        window, self.window = self.window, None
        if window is None:
            return []
        event: dict[str, Any] = {
            "type": "steps",
            "first": window.first,
            "last": window.last,
            "start": window.start,
            "end": window.end,
            "slowest": window.slowest,
        }
        if window.wait:
            event["data_wait"] = min(window.wait, window.end - window.start)
        if window.growing:
            event["cursor_start"], event["cursor_end"] = window.cursor_start, window.cursor_end
        return [event]
