"""A wire file read line by line: one event a line, with node, incarnation and seq beside its fields.

Lines are checked by the same table as a batch of the network, so a file is quarantined with the same
words. Memory stays that of the events, not of the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ett_collector.wire import Event, Rejected, decode_event
from fleet_ett.replay.json_lines import parse_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A line (counted from 1) that is not an event, and why."""

    line: int
    reason: str


@dataclass(slots=True)
class WireFile:
    """The events of `lines`; `quarantined` is complete once `events` has been used up."""

    lines: Iterable[bytes | str]
    quarantined: list[Quarantined] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """Each good line's event, in the file's order. Empty lines are passed over."""
        for number, line in enumerate(self.lines, start=1):
            if not line.strip():
                continue
            try:
                yield decode_line(line)
            except ValueError as error:
                self.quarantined.append(Quarantined(number, str(error)))


def decode_line(line: bytes | str) -> Event:
    """The event of one line. Raises ValueError (`Rejected` among them) with the reason."""
    raw = parse_line(line)
    if not isinstance(raw, dict):
        msg = "a line must hold one JSON object"
        raise Rejected(msg)
    for name in ("node", "incarnation"):
        if raw.get(name) is None:
            msg = f"a line needs {name}"
            raise Rejected(msg)
    offset = raw.get("clock_offset_ns")
    return decode_event(
        raw,
        node=raw["node"],
        incarnation=raw["incarnation"],
        clock_offset_ns=0 if offset is None else offset,
    )
