"""The offset of this node's clock against the service's, from the round trips of its own posts.

The service's time lies somewhere within a round trip, so a sample gives an interval, and the shortest round
trip the tightest one (minimum-delay sample). An estimate that still lies within it is kept, and 0 is
preferred where it does: stamps are corrected by the offset, and one that trembles would tear seams into
every timeline.

The node's clock is `nodeclock.py`'s, which nobody sets: where two intervals lie far from each other, the service's
was. It may be set back in a minute, so the estimate stays until the service has said the same for ten.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLES = 16
AGE_NS = 600_000_000_000
STEP_NS = 10_000_000  # the wall clock was set: what was measured before says nothing
TRIES = 4  # readings of two clocks
SET_NS = 100_000_000  # between two intervals: the service's clock was set, it does not drift so far


def asleep_ns() -> int:
    """How long this machine has slept since its boot (ns): its monotonic clock stood. 0 where nobody knows."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    # A process that is put aside between the two readings sees less: the most is right.
    return max(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() for _ in range(TRIES))


class ClockOffset:
    """`value` is node minus service (ns), None before the first sample."""

    def __init__(self) -> None:
        self.value: int | None = None
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=SAMPLES)
        self._anchor: int | None = None
        self._best: tuple[int, int, int] | None = None
        self._asleep: int | None = None  # as it was at the last sample
        self._denied_since: int | None = None  # monotonic ns; what the service says now is not believed yet
        self.of_node: int | None = None  # anchor of the clock whose offset is wanted; None: the wall clock's

    def sample(self, sent: int, mono_sent: int, mono_received: int, server_time: int) -> None:
        """Take a round trip: wall ns when sent, monotonic ns when sent and received, the service's answer."""
        anchor = sent - mono_sent
        trip = mono_received - mono_sent
        if self.of_node is not None:
            sent = mono_sent + self.of_node
            if self._is_set(sent - server_time, trip, mono_received):
                return
        elif self._anchor is not None and abs(anchor - self._anchor) > STEP_NS:
            self._samples.clear()
        self._anchor = anchor
        # the service's moment lies between `sent` and `sent + trip` on this node's clock
        self._samples.append((trip, sent - server_time, mono_received))
        self._best = min(one for one in self._samples if mono_received - one[2] <= AGE_NS)
        trip, low, _ = self._best
        high = low + trip
        if self.value is None or not low <= self.value <= high:
            self.value = 0 if low <= 0 <= high else low + trip // 2

    def _is_set(self, low: int, trip: int, now: int) -> bool:
        """Whether the service's clock was set since, and that not long ago."""
        before, self._asleep = self._asleep, asleep_ns()
        if before is not None and self._asleep - before > SET_NS:
            self.forget()  # this machine's own clock stood meanwhile
        known = min((one for one in self._samples if now - one[2] <= 2 * AGE_NS), default=None)
        if known is None or max(low - known[1] - known[0], known[1] - low - trip) <= SET_NS:
            self._denied_since = None
            return False
        if self._denied_since is None:
            self._denied_since = now
        if now - self._denied_since < AGE_NS:
            return True
        self.forget()
        return False

    def to_json(self) -> dict[str, Any]:
        """The estimate and what it stands on, for a later agent with the same clock."""
        return {"value": self.value, "best": self._best, "asleep": self._asleep}

    def resume(self, state: Mapping[str, Any], of_node: int) -> None:
        """Measure the node's clock of that anchor from here on, and go on with an estimate of it (`to_json`)."""
        self.of_node = of_node
        if state.get("best") is not None:
            self.value, self._asleep = state["value"], state.get("asleep")
            trip, low, at = self._best = tuple(state["best"])
            self._samples.append((trip, low, at))

    def forget(self) -> None:
        """Forget the samples; the estimate holds until the first that contradicts it."""
        self._samples.clear()
        self._anchor = self._denied_since = None
