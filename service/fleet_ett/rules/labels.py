"""What every alert carries: an owner, a severity, what it means in one line, its runbook, and where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.rules.durations import duration
from fleet_ett.rules.groups import Alert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet_ett.rules.objectives import Objectives

CLUSTER = "cluster={{ $labels.cluster | urlquery }}"


def alert(
    objectives: Objectives,
    name: str,
    expr: str,
    *,
    summary: str,
    page: str,
    labels: Mapping[str, str],
    persists_s: int = 0,
) -> Alert:
    """An alert rule. `page`: the service's path that explains it; `labels`: severity, owner unless a series has it."""
    annotations: Mapping[str, str] = {
        "summary": summary,
        "runbook_url": f"{objectives.runbooks}/{name}.md",
        "page_url": f"{objectives.url}{page}",
    }
    return Alert(name, expr, duration(persists_s) if persists_s else "", labels, annotations)
