"""What collectors would have sent: events of the wire with node clocks, incarnations and sequence numbers.

Delivery is part of it: events come in any order and some of them twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

Fields = dict[str, Any]


@dataclass(slots=True)
class Reports:
    """The events of a fleet. Stamps are given as they truly were; each node's clock bends them."""

    chance: random.Random
    sent: list[Fields] = field(default_factory=list)
    duplicates: int = 0
    _offsets: dict[str, int] = field(default_factory=dict)
    _boots: dict[str, int] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)

    def add(self, node: str, kind: str, /, **fields: Any) -> None:
        """One event of `node`; `ts`, `start` and `end` in true ns."""
        offset = self._offset(node)
        boot = f"{node}/{self._boots.setdefault(node, 0)}"
        self._next[boot] = self._next.get(boot, 0) + 1
        stamps: Fields = {name: fields[name] + offset for name in ("ts", "start", "end") if name in fields}
        event: Fields = {
            "type": kind,
            **fields,
            **stamps,
            "node": node,
            "incarnation": boot,
            "seq": self._next[boot],
        }
        if offset:
            event["clock_offset_ns"] = offset
        self.sent.append(event)

    def restart_agent(self, node: str) -> None:
        """The node's agent comes back with a new incarnation and counts from 1 again."""
        self._boots[node] = self._boots.get(node, 0) + 1

    def delivered(self) -> list[Fields]:
        """Everything sent, some of it twice, in no order."""
        again = [event for event in self.sent if self.chance.random() < 0.1]
        self.duplicates = len(again)
        out = self.sent + again
        self.chance.shuffle(out)
        return out

    def _offset(self, node: str) -> int:
        if node not in self._offsets:
            skewed = self.chance.random() < 0.3
            self._offsets[node] = self.chance.randint(-7_000_000_000, 7_000_000_000) if skewed else 0
        return self._offsets[node]
