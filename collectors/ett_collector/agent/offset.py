"""The offset of this node's clock against the service's, from the round trips of its own posts.

The service's time lies somewhere within a round trip, so a sample gives an interval, and the shortest round
trip the tightest one (minimum-delay sample). An estimate that still lies within it is kept, and 0 is
preferred where it does: stamps are corrected by the offset, and one that trembles would tear seams into
every timeline. The node's clock is `nodeclock.py`'s, which nobody sets.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 16
AGE_NS = 600_000_000_000
STEP_NS = 10_000_000  # the wall clock was set: what was measured before says nothing


class ClockOffset:
    """`value` is node minus service (ns), None before the first sample."""

    def __init__(self) -> None:
        self.value: int | None = None
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=SAMPLES)
        self._anchor: int | None = None
        self.of_node: int | None = None  # anchor of the clock whose offset is wanted; None: the wall clock's

    def sample(self, sent: int, mono_sent: int, mono_received: int, server_time: int) -> None:
        """Take a round trip: wall ns when sent, monotonic ns when sent and received, the service's answer."""
        anchor = sent - mono_sent
        if self._anchor is not None and abs(anchor - self._anchor) > STEP_NS:
            self._samples.clear()
        self._anchor = anchor
        if self.of_node is not None:
            sent = mono_sent + self.of_node
        trip = mono_received - mono_sent
        # the service's moment lies between `sent` and `sent + trip` on this node's clock
        self._samples.append((trip, sent - server_time, mono_received))
        trip, low, _ = min(one for one in self._samples if mono_received - one[2] <= AGE_NS)
        high = low + trip
        if self.value is None or not low <= self.value <= high:
            self.value = 0 if low <= 0 <= high else low + trip // 2

    def forget(self) -> None:
        """Forget the samples; the estimate holds until the first that contradicts it."""
        self._samples.clear()
        self._anchor = None
