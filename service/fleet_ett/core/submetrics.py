"""Sub-metrics of a job (accounting.md, sections 6 and 7): times to start and recover, failures, L1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet_ett.core import ratios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet_ett.core.incidents import Incident
    from fleet_ett.core.summary import AttemptSummary
    from fleet_ett.core.totals import Totals

SECOND = 1_000_000_000


def times_of_incidents(
    incidents: Sequence[tuple[Incident, AttemptSummary | None]],
) -> dict[str, list[int]]:
    """How long recoveries took (ns), by incident where it is known; each comes with the attempt that followed."""
    recoveries, catch_ups = [], []
    for incident, after in incidents:
        if after is not None and after.first_step_at is not None:
            recoveries.append(after.first_step_at - incident.at)
        if after is not None and after.first_new_at is not None:
            catch_ups.append(after.first_new_at - incident.at)
    return {
        "time_to_recover_ns": recoveries,
        "catch_up_ns": catch_ups,
        "detection_ns": [one.detection_ns for one, _ in incidents if one.detection_ns is not None],
    }


def sub_metrics(totals: Totals) -> dict[str, Any]:
    """Sub-metrics (accounting.md, section 7) and the L1 identity with its residual; null where unknown."""
    wall, productive = totals.wall_ns, totals.of("headings", "productive")[0]
    failures = totals.failures
    unplanned, count = failures["infra"] + failures["unknown"], sum(failures.values())
    held = wall - totals.of("headings", "gap")[0]
    mean = totals.incident_ns / count if count else 0.0
    start_up = totals.first_start_up_ns
    identity = ratios.l1_identity(start_up, count, mean, wall)
    ett = ratios.ett(productive, wall)
    blocking = totals.of("headings", "checkpoint")[0]
    saves = totals.saves
    replay, replay_gpu = totals.of("headings", "replay")
    loop = productive + replay
    return {
        "time_to_start_ns": totals.time_to_start_ns,
        "number_of_failures": count,
        "mean_time_to_failure_ns": held // unplanned if unplanned else None,
        "failures_per_1000_node_days": ratios.failures_per_thousand_node_days(unplanned, totals.node_ns),
        "replay_gpu_ns": replay_gpu,
        "samples_replayed": totals.samples_replayed,
        "repeated_startup_ns": totals.repeated_startup_ns,
        "checkpoint_saves": saves,
        "checkpoint_interval_ns": loop // saves if saves else None,
        "checkpoint_blocking_ns": blocking,
        "expected_ett": _expected(loop, saves, blocking, totals.recovered, held, unplanned),
        "l1": {
            "tts_ns": start_up,
            "number_of_failures": count,
            "mean_ttr_ns": round(mean),
            "ett": identity,
            "residual": None if identity is None or ett is None else identity - ett,
        },
    }


def _expected(
    loop: int, saves: int, blocking: int, recovered: Sequence[int], held: int, unplanned: int
) -> float | None:
    """What failures alone should leave (`ratios.expected_ett`); None without failures or saves."""
    took, recoveries = recovered
    if not (loop and saves and unplanned and held and recoveries):
        return None
    return ratios.expected_ett(
        loop / saves / SECOND,
        blocking / saves / SECOND,
        took / recoveries / SECOND,
        held / unplanned / SECOND,
    )
