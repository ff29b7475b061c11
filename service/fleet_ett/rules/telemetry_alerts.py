"""Alerts on jobs that stand still, and on what the figures stand on: events that do not come, or come late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.rules.counters import EVENTS, HELD, UNKNOWN
from fleet_ett.rules.durations import duration
from fleet_ett.rules.groups import Group, quoted
from fleet_ett.rules.labels import CLUSTER, alert
from fleet_ett.rules.objectives import PAGE, TICKET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.rules.groups import Alert
    from fleet_ett.rules.objectives import Objectives

_GPUS = "sum(max by (cluster, team) (ett_gpus_allocated))"


def telemetry_group(objectives: Objectives) -> Group:
    """Stuck jobs, and doubts about the telemetry."""
    rules = (*_jobs(objectives), *_service(objectives), *_agents(objectives))
    return Group("ett-telemetry-alerts", duration(objectives.interval_s), rules)


def _jobs(objectives: Objectives) -> Iterator[Alert]:
    told = objectives.telemetry
    hour = duration(min(objectives.windows_s))
    yield alert(
        objectives,
        "EttJobsStuck",
        f"max by (cluster, team) (ett_gpus_without_progress) >= {told.stuck_gpus}",
        summary="{{ $value | humanize }} GPUs of {{ $labels.team }} on {{ $labels.cluster }} are held by jobs that show"
        " no progress",
        page=f"/v1/jobs?{CLUSTER}&team={{{{ $labels.team | urlquery }}}}&phase=hang,unaccounted",
        persists_s=told.stuck_s,
        labels={"severity": PAGE, "owner": objectives.owner},
    )
    yield alert(
        objectives,
        "EttUnknownShare",
        f"increase({UNKNOWN.series}[{hour}]) / (cluster:{HELD.name}:increase{hour} > 0) > {told.unknown:.9g}",
        summary=f"Nothing was reported for {{{{ $value | humanizePercentage }}}} of the GPU time of"
        f" {{{{ $labels.cluster }}}} over {hour}",
        page=f"/v1/fleet/ett?by=cluster&{CLUSTER}",
        persists_s=told.absent_s,
        labels={"severity": TICKET, "owner": objectives.owners["observability"]},
    )


def _service(objectives: Objectives) -> Iterator[Alert]:
    told = objectives.telemetry
    who = {"owner": objectives.owners["observability"]}
    yield alert(
        objectives, "EttServiceAbsent", "absent(ett_events_total)",
        summary="No replica of the service was scraped: all ETT figures stand still and its alerts are silent",
        page="/readyz", persists_s=told.absent_s, labels={"severity": PAGE} | who,
    )  # fmt: skip
    yield alert(
        objectives, "EttReplicaDown", f"up{{job={quoted(told.service_job)}}} == 0",
        summary="{{ $labels.instance }} of the service cannot be scraped",
        page="/readyz", persists_s=told.absent_s, labels={"severity": TICKET} | who,
    )  # fmt: skip
    yield alert(
        objectives, "EttIngestLag", f"min(ett_ingest_lag_seconds) > {told.ingest_lag_s} and {_GPUS} > 0",
        summary="The newest event is {{ $value | humanizeDuration }} old although jobs hold GPUs",
        page="/v1/nodes", persists_s=told.absent_s, labels={"severity": PAGE} | who,
    )  # fmt: skip
    yield alert(
        objectives, "EttAttributionLag", f"min(ett_attribution_lag_seconds) > {told.attribution_lag_s}",
        summary="Events have waited {{ $value | humanizeDuration }} for their attribution",
        page="/readyz", persists_s=told.absent_s, labels={"severity": TICKET} | who,
    )  # fmt: skip
    hour = duration(min(objectives.windows_s))
    bad = f'sum(increase({EVENTS.series}{{result=~"conflict|quarantined|rejected"}}[{hour}]))'
    yield alert(
        objectives, "EttEventsRefused", f"{bad} / (sum(increase({EVENTS.series}[{hour}])) > 0) > {told.refused:.9g}",
        summary=f"{{{{ $value | humanizePercentage }}}} of all events over {hour} were refused or contradict another",
        page="/v1/quarantine", persists_s=told.absent_s, labels={"severity": TICKET} | who,
    )  # fmt: skip


def _agents(objectives: Objectives) -> Iterator[Alert]:
    told = objectives.telemetry
    who = {"owner": objectives.owners["observability"]}
    hour = duration(min(objectives.windows_s))
    yield alert(
        objectives, "EttAgentDown", f"up{{job={quoted(told.agent_job)}}} == 0",
        summary="The agent on {{ $labels.instance }} cannot be scraped",
        page="/v1/nodes", persists_s=told.absent_s, labels={"severity": TICKET} | who,
    )  # fmt: skip
    yield alert(
        objectives, "EttAgentBehind", f"ett_agent_oldest_unsent_seconds > {told.agent_behind_s}",
        summary="The agent on {{ $labels.instance }} holds events that are {{ $value | humanizeDuration }} old",
        page="/v1/nodes", persists_s=told.absent_s, labels={"severity": TICKET} | who,
    )  # fmt: skip
    yield alert(
        objectives, "EttAgentDropping", f"increase(ett_agent_dropped_total[{hour}]) > 0",
        summary=f"The agent on {{{{ $labels.instance }}}} lost {{{{ $value | humanize }}}} events over {hour}",
        page="/v1/nodes", labels={"severity": PAGE} | who,
    )  # fmt: skip
