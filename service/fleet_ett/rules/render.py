"""Objectives as the file of rules that Prometheus loads, or as the PrometheusRule that its operator loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from fleet_ett.rules.burn_alerts import burn_group
from fleet_ett.rules.counters import counter_groups
from fleet_ett.rules.ratios import ratio_groups
from fleet_ett.rules.regressions import regression_groups
from fleet_ett.rules.telemetry_alerts import telemetry_group

if TYPE_CHECKING:
    from typing import Any

    from fleet_ett.rules.groups import Group
    from fleet_ett.rules.objectives import Objectives

HEAD = "# Made by `fleet-ett rules render` from a file of objectives: change that, and render again.\n"


def groups(objectives: Objectives) -> tuple[Group, ...]:
    """All groups, those that others read first."""
    return (
        *counter_groups(objectives),
        *ratio_groups(objectives),
        *regression_groups(objectives),
        burn_group(objectives),
        telemetry_group(objectives),
    )


def render(objectives: Objectives, *, kubernetes: bool = False) -> str:
    """The rules as YAML."""
    spec: dict[str, Any] = {"groups": [one.to_yaml() for one in groups(objectives)]}
    if kubernetes:
        name = {"name": "fleet-ett", "labels": {"app.kubernetes.io/name": "fleet-ett"}}
        spec = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": name,
            "spec": spec,
        }
    told: str = yaml.safe_dump(spec, sort_keys=False, width=1_000_000, allow_unicode=True)
    return HEAD + told
