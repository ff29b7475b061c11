"""Where the books that the core made of a plan's events differ from the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ett_collector.wire import Event, decode_event
from fleet_ett.core.ledger import attribute_fleet
from fleet_ett.core.policy import Policy
from tests.judge.known import BLAMED, Booked, joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet_ett.core.ledger import Ledger
    from tests.judge.fleet_plan import FleetPlan
    from tests.judge.known import KnownJob

KINDS = ("infra", "user", "planned", "unknown")


def decoded(plan: FleetPlan) -> list[Event]:
    """The plan's events as delivered, checked by the wire."""
    return [
        decode_event(
            event,
            node=event["node"],
            incarnation=event["incarnation"],
            clock_offset_ns=event.get("clock_offset_ns", 0),
        )
        for event in plan.events
    ]


def verdict(plan: FleetPlan) -> list[str]:
    """One line for each difference; nothing when the books are right."""
    books = attribute_fleet(decoded(plan), now=plan.now, policy=Policy())
    lines = [f"{job}: {line}" for job, known in plan.jobs.items() for line in _job(known, books.jobs[job])]
    if (plan.duplicates, 0) != (books.duplicates, books.conflicts):
        lines.append(f"duplicates {plan.duplicates}, got {books.duplicates}; conflicts {books.conflicts}")
    return lines


def timeline(ledger: Ledger) -> list[Booked]:
    """The booked timeline of a job as pieces like the plan's."""
    return joined(
        Booked(
            row.start,
            row.end,
            row.heading,
            row.phase,
            row.gpus,
            (row.node, row.rank) if row.node and row.rank is not None and row.heading in BLAMED else None,
        )
        for attempt in ledger.attempts
        for row in attempt.segments.rows()
    )


def _job(known: KnownJob, ledger: Ledger) -> list[str]:
    summary = ledger.summary
    induced = {name: wall for name, (wall, _) in summary.induced.items()}
    failures = {kind: sum(one.kind == kind for one in known.incidents) for kind in KINDS}
    return [
        *_timeline(joined(known.pieces), timeline(ledger)),
        *_amounts("headings", known.sums("heading"), {k: wall for k, (wall, _) in summary.headings.items()}),
        *_amounts(
            "GPU headings",
            known.sums("heading", weight_gpus=True),
            {k: gpu for k, (_, gpu) in summary.headings.items()},
        ),
        *_amounts("phases", known.sums("phase"), {k: wall for k, (wall, _) in summary.phases.items()}),
        *_amounts("direct", known.direct(), {k: wall for k, (wall, _) in summary.components.items()}),
        *_amounts("induced", known.induced(), induced),
        *_amounts("steps", known.steps, summary.steps),
        *_amounts("failures", failures, summary.failures),
        *_amounts("attempts", {"n": known.attempts}, {"n": summary.attempts}),
        *_incidents(known, ledger),
    ]


def _timeline(expected: list[Booked], actual: list[Booked]) -> list[str]:
    for index, piece in enumerate(expected):
        if index >= len(actual) or actual[index] != piece:
            return [f"piece {index}: {piece}, got {actual[index : index + 1]}"]
    return [f"unexpected {actual[len(expected)]}"] if len(actual) > len(expected) else []


def _amounts(what: str, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    return [
        f"{what}: {name} {expected.get(name, 0)}, got {actual.get(name, 0)}"
        for name in sorted({*expected, *actual})
        if expected.get(name, 0) != actual.get(name, 0)
    ]


def _incidents(known: KnownJob, ledger: Ledger) -> list[str]:
    found = ledger.summary.incidents
    if len(found) != len(known.incidents):
        return [f"{len(known.incidents)} incidents, got {len(found)}"]
    lines: list[str] = []
    for index, (one, actual) in enumerate(zip(known.incidents, found, strict=True)):
        cause = actual.cause if one.cause is not None else None
        node = actual.node if one.node is not None else None
        costs = (actual.stall_ns, actual.gap_ns, actual.restart_ns, actual.replay_ns)
        expected = (
            one.kind,
            one.component,
            one.cause,
            one.node,
            (one.tail, one.gap, one.restart, one.replay),
        )
        if expected != (actual.kind, actual.component, cause, node, costs):
            lines.append(f"incident {index}: {expected}, got {actual}")
    return lines
