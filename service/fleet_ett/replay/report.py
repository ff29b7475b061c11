"""The books of a replayed file as the JSON document of wire.md ("Offline").

Amounts are integer nanoseconds of wall time unless a name says `gpu`; `ett` is a ratio 0..1, null where
nothing was held. Every heading of the contract stands in `headings`, with 0 where nothing was booked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet_ett.core import ratios
from fleet_ett.core.taxonomy import HEADINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet_ett.core.ledger import Incident, JobSummary, Ledger
    from fleet_ett.replay.offline import Replay

WALL, GPU = 0, 1  # places in a pair


def document(replay: Replay) -> dict[str, Any]:
    """The whole answer: jobs by id, the fleet's figure (sums first, then the ratio), what was refused."""
    jobs = {job: job_document(ledger) for job, ledger in sorted(replay.books.jobs.items())}
    gpu = sum(job["gpu_ns"] for job in jobs.values())
    productive = sum(job["gpu_headings"]["productive"] for job in jobs.values())
    return {
        "jobs": jobs,
        "fleet": {"ett": ratios.ett(productive, gpu), "gpu_ns": gpu, "productive_gpu_ns": productive},
        "quarantined": [{"line": one.line, "reason": one.reason} for one in replay.quarantined],
        "duplicates": replay.books.duplicates,
        "conflicts": replay.books.conflicts,
    }


def job_document(ledger: Ledger) -> dict[str, Any]:
    """One job's books."""
    summary = ledger.summary
    return {
        "wall_ns": summary.wall_ns,
        "gpu_ns": summary.gpu_ns,
        "ett": summary.ett,
        "headings": headings(summary.headings, WALL),
        "gpu_headings": headings(summary.headings, GPU),
        "phases": {phase: pair[WALL] for phase, pair in sorted(summary.phases.items())},
        "overlapped": dict(sorted(summary.overlapped.items())),
        "l2": {bucket: pair[WALL] for bucket, pair in summary.l2.items()},
        "components": components(summary),
        "goodput": ledger.goodput().to_json(),
        "steps": dict(summary.steps),
        "late_ns": sum(flag.get("amount") or 0 for flag in summary.flags if flag["flag"] == "late"),
        "provisional_ns": summary.provisional_ns,
        "live": summary.live,
        "held_up_by": [dict(holder) for holder in summary.held_up_by],
        "attempts": summary.attempts,
        "failures": dict(summary.failures),
        "incidents": [incident_document(incident) for incident in summary.incidents],
        "metrics": summary.metrics,
        "flags": [dict(flag) for flag in summary.flags],
    }


def headings(pairs: Mapping[str, list[int]], place: int) -> dict[str, int]:
    """Amounts by heading, in the order of the contract, custom ones last."""
    named = {heading: pairs.get(heading, [0, 0])[place] for heading in HEADINGS}
    custom = {heading: pair[place] for heading, pair in sorted(pairs.items()) if heading not in named}
    return {**named, **custom}


def components(summary: JobSummary) -> dict[str, dict[str, int]]:
    """Direct and induced loss by component, for those that have any."""
    names = sorted({*summary.components, *summary.induced})
    return {
        name: {
            "direct_ns": summary.components.get(name, [0, 0])[WALL],
            "induced_ns": summary.induced.get(name, [0, 0])[WALL],
        }
        for name in names
    }


def incident_document(incident: Incident) -> dict[str, Any]:
    """One incident: what ended the attempt, on which evidence, and what it cost."""
    return {
        "attempt": incident.attempt,
        "at": incident.at,
        "outcome": incident.outcome,
        "cause": incident.cause,
        "kind": incident.kind,
        "component": incident.component,
        "status": incident.status,
        "node": incident.node,
        "rank": incident.rank,
        "evidence": [dict(one) for one in incident.evidence],
        "stall_ns": incident.stall_ns,
        "gap_ns": incident.gap_ns,
        "restart_ns": incident.restart_ns,
        "replay_ns": incident.replay_ns,
        "induced_ns": incident.wall_ns,
        "replayed_steps": incident.replayed_steps,
    }
