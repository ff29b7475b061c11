"""The clock of one trainer process: wall stamps that never run backwards inside a span.

A stamp is the monotonic clock plus an anchor (wall minus monotonic). Where the wall clock is set, the anchor
follows it for what begins from then on; a span that is open keeps its start, and its length is monotonic time
(accounting.md, section 8).
"""

from __future__ import annotations

from time import monotonic_ns, time_ns

DRIFT_NS = 10_000_000  # wall and monotonic may differ by less: reading the two clocks takes time
JUMP_NS = 1_000_000_000  # a jump from here on is told with the span
_TRIES = 4


class Clock:
    """`now()` answers (stamp, mono): wall ns since the epoch in UTC, and the monotonic ns it stands for."""

    __slots__ = ("_anchor",)

    def __init__(self) -> None:
        self._anchor = time_ns() - monotonic_ns()
        self._set_anchor()

    def now(self) -> tuple[int, int]:
        """The present moment; cheap, and safe from any thread."""
        mono = monotonic_ns()
        if not -DRIFT_NS < time_ns() - mono - self._anchor < DRIFT_NS:
            self._set_anchor()
            mono = monotonic_ns()
        return mono + self._anchor, mono

    def _set_anchor(self) -> None:
        # A process that is descheduled between the two readings sees a false jump: keep the tightest pair.
        best = None
        for _ in range(_TRIES):
            before = monotonic_ns()
            wall = time_ns()
            width = monotonic_ns() - before
            if best is None or width < best[0]:
                best = (width, wall - before - width // 2)
        if best is not None and not -DRIFT_NS < best[1] - self._anchor < DRIFT_NS:
            self._anchor = best[1]


def span_end(start: tuple[int, int], now: tuple[int, int]) -> tuple[int, int]:
    """(end stamp, clock jump ns) of a span between two readings of `Clock.now`.

    The end is the start plus monotonic time. The jump is 0 unless wall and monotonic differ by over a second.
    """
    end = start[0] + now[1] - start[1]
    jump = now[0] - end
    return end, jump if abs(jump) > JUMP_NS else 0
