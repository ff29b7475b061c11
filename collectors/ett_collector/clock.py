"""The clocks of one trainer process: stamps are monotonic, and an anchor says what they are on the wall.

Reading one clock is enough for a record: stamp = monotonic + anchor (wall minus monotonic). Where the wall clock
is set, the anchor follows it within `CHECK_NS` for what begins from then on; a span that is open keeps its start,
and its length is monotonic time (accounting.md, section 8).
"""

from __future__ import annotations

from time import monotonic_ns, time_ns

DRIFT_NS = 10_000_000  # wall and monotonic may differ by less: reading the two clocks takes time
CHECK_NS = 1_000_000_000  # how often the wall clock is looked at
_TRIES = 4


class Clock:
    """`anchor` is wall minus monotonic (ns) as it was when the two were last compared."""

    __slots__ = ("anchor",)

    def __init__(self) -> None:
        self.anchor = _measure()

    def follow(self) -> bool:
        """Compare the clocks again; whether the wall clock was set since, and the anchor is a new one."""
        if -DRIFT_NS < time_ns() - monotonic_ns() - self.anchor < DRIFT_NS:
            return False
        found = _measure()
        if -DRIFT_NS < found - self.anchor < DRIFT_NS:
            return False
        self.anchor = found
        return True


def _measure() -> int:
    # A process that is descheduled between the two readings sees a false jump: keep the tightest pair.
    best = None
    for _ in range(_TRIES):
        before = monotonic_ns()
        wall = time_ns()
        width = monotonic_ns() - before
        if best is None or width < best[0]:
            best = (width, wall - before - width // 2)
    assert best is not None
    return best[1]
