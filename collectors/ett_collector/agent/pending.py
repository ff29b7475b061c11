"""What the next commit will hold: events, and whose state they changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Pending:
    """Events in order. `dirty` and `gone` are names of traces, `changed` are attempts (job, attempt).

    `cursors` are how far sources have read.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    changed: set[tuple[str, str]] = field(default_factory=set)
    cursors: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, events: list[dict[str, Any]]) -> None:
        """Events of a trace, which they have changed."""
        if events:
            self.dirty.add(name)
            self.events += events

    @property
    def is_settled(self) -> bool:
        """Whether all that traces and attempts have become is committed."""
        return not (self.dirty or self.changed)

    def clear(self) -> None:
        """It is committed."""
        self.events, self.dirty, self.gone, self.changed, self.cursors = [], set(), set(), set(), {}
