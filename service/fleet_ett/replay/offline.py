"""Files of events to books: what `fleet-ett replay` computes, without the command line around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet_ett.core.ledger import FleetBooks, attribute_fleet
from fleet_ett.core.policy import Policy
from fleet_ett.replay.goodput import read_timeline
from fleet_ett.replay.json_lines import parse_line
from fleet_ett.replay.wire_file import Quarantined, WireFile

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Replay:
    """The books of a file and the lines that it could not use."""

    books: FleetBooks
    quarantined: list[Quarantined] = field(default_factory=list)


def replay_wire(
    lines: Iterable[bytes | str], *, as_of: int | None = None, policy: Policy | None = None
) -> Replay:
    """Attribute the lines of a wire file, in any order.

    `as_of` (ns) is the time of the question, by default the newest accepted stamp. A line that is not an
    event is quarantined with its number and a reason; it never sinks its neighbours.
    """
    file = WireFile(lines)
    books = attribute_fleet(file.events(), now=as_of, policy=policy or Policy())
    return Replay(books, file.quarantined)


def replay_goodput(
    lines: Iterable[bytes | str], *, as_of: int | None = None, policy: Policy | None = None
) -> Replay:
    """Attribute goodput timelines, one JSON document a line, each a job (and `<id>#2` for a second run).

    `as_of` is in ns since the timeline's zero, by default its own `as_of_s`. The time that a timeline
    excludes is added to the policy's. A line that is no timeline is quarantined.
    """
    found = Replay(FleetBooks())
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            timeline = read_timeline(parse_line(line))
        except ValueError as error:
            found.quarantined.append(Quarantined(number, str(error)))
            continue
        books = attribute_fleet(
            timeline.events(), now=timeline.moment(as_of), policy=timeline.policy(policy or Policy())
        )
        found.books.jobs.update(books.jobs)
        found.books.duplicates += timeline.duplicates
    return found
