"""The node's clock as its agent keeps it: the monotonic clock, and an anchor that stays while the machine runs.

Where the wall clock is set (by NTP after the boot, by hand), stamps from before and after it do not go together, and
an offset against the service that was measured before it is wrong for what is stamped after it. So the agent sends no
stamps of the wall clock: all processes of a node stamp monotonic time (`slots.py`), and the agent adds the anchor that
it found when it first ran on this boot (or began again while no trainer was here), kept with its state. The offset is
measured of the same clock.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector.clock import DRIFT_NS, Clock

if TYPE_CHECKING:
    from collections.abc import Mapping


class NodeClock(NamedTuple):
    """`anchor` is what a stamp is ahead of monotonic time (ns), on the boot of that id."""

    boot: str
    anchor: int

    @classmethod
    def of(cls, boot: str, state: Mapping[str, Any]) -> NodeClock:
        """The clock of an earlier agent on this boot (`to_json` in its state), else one that begins now."""
        if boot and state.get("boot") == boot:
            return cls(boot, int(state["anchor"]))
        return cls(boot, Clock().anchor)

    def to_json(self) -> dict[str, Any]:
        """The clock as JSON values."""
        return self._asdict()

    def now(self) -> int:
        """This moment (ns)."""
        return monotonic_ns() + self.anchor

    def ahead_of_wall(self) -> int:
        """What to add to a stamp (ns) that somebody made on the wall clock as it is now."""
        ahead = self.anchor - Clock().anchor
        return 0 if abs(ahead) < DRIFT_NS else ahead

    def knows(self, head: Mapping[str, Any]) -> bool:
        """Whether the monotonic clock of a recorder, by the head of its spool, is that of this boot."""
        return bool(self.boot) and head.get("boot") == self.boot

    def adopt(self, head: dict[str, Any]) -> dict[str, Any]:
        """The head of a spool with its stamps, which are of the wall clock, as this clock says them.

        Those of another boot, or of a recorder that told no anchor, stay.
        """
        if not self.knows(head) or type(head.get("anchor")) is not int:
            return head
        ahead = self.anchor - head["anchor"]
        stamps = {name: head.get(name) for name in ("at", "began", "allocated", "launched_at")}
        return {**head, **{name: stamp + ahead for name, stamp in stamps.items() if stamp}}
