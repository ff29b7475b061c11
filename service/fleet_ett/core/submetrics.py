"""Sub-metrics of a job (accounting.md, sections 6 and 7): times to start and recover, failures, L1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet_ett.core import ratios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet_ett.core.job import Incident
    from fleet_ett.core.summary import AttemptSummary

SECOND = 1_000_000_000


def sub_metrics(
    summaries: Sequence[AttemptSummary],
    incidents: Sequence[Incident],
    failures: dict[str, int],
    wall: int,
    productive: int,
) -> dict[str, Any]:
    """Sub-metrics (accounting.md, section 7) and the L1 identity with its residual; null where unknown."""
    first = summaries[0] if summaries else None
    tts = None
    if first is not None and first.first_new_at is not None:
        tts = first.first_new_at - first.start
    recoveries, catch_ups = [], []
    for incident in incidents:
        after = summaries[incident.index + 1] if incident.index + 1 < len(summaries) else None
        if after is not None and after.first_step_at is not None:
            recoveries.append(after.first_step_at - incident.at)
        if after is not None and after.first_new_at is not None:
            catch_ups.append(after.first_new_at - incident.at)
    unplanned = failures["infra"] + failures["unknown"]
    node_ns = sum((s.wall_ns - s.gap[0]) * max(len(s.nodes), 1) for s in summaries)
    held = wall - sum(s.gap[0] for s in summaries)
    costs = [i.wall_ns for i in incidents]
    mean = sum(costs) / len(costs) if costs else 0.0
    start_up = first.restart[0] if first is not None else 0
    identity = ratios.l1_identity(start_up, len(costs), mean, wall)
    ett = ratios.ett(productive, wall)
    blocking = sum(s.headings.get("checkpoint", [0, 0])[0] for s in summaries)
    saves = sum(s.saves for s in summaries)
    loop = productive + sum(s.replay[0] for s in summaries)
    return {
        "time_to_start_ns": tts,
        "time_to_recover_ns": recoveries,
        "catch_up_ns": catch_ups,
        "detection_ns": [i.detection_ns for i in incidents if i.detection_ns is not None],
        "number_of_failures": sum(failures.values()),
        "mean_time_to_failure_ns": held // unplanned if unplanned else None,
        "failures_per_1000_node_days": ratios.failures_per_thousand_node_days(unplanned, node_ns),
        "replay_gpu_ns": sum(s.replay[1] for s in summaries),
        "samples_replayed": sum(s.samples_replayed for s in summaries),
        "repeated_startup_ns": sum(s.repeated_startup[0] for s in summaries),
        "checkpoint_saves": saves,
        "checkpoint_interval_ns": loop // saves if saves else None,
        "checkpoint_blocking_ns": blocking,
        "expected_ett": _expected(loop, saves, blocking, recoveries, held, unplanned),
        "l1": {
            "tts_ns": start_up,
            "number_of_failures": len(costs),
            "mean_ttr_ns": round(mean),
            "ett": identity,
            "residual": None if identity is None or ett is None else identity - ett,
        },
    }


def _expected(
    loop: int,
    saves: int,
    blocking: int,
    recoveries: list[int],
    held: int,
    unplanned: int,
) -> float | None:
    """What failures alone should leave (`ratios.expected_ett`); None without failures or saves."""
    if not (loop and saves and unplanned and held and recoveries):
        return None
    mean_recovery = sum(recoveries) / len(recoveries) / SECOND
    return ratios.expected_ett(
        loop / saves / SECOND,
        blocking / saves / SECOND,
        mean_recovery,
        held / unplanned / SECOND,
    )
