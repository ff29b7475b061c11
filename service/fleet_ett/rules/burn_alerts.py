"""Alerts on budgets that burn too fast, over a long window and still over a short one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.rules.counters import HELD
from fleet_ett.rules.durations import duration
from fleet_ett.rules.groups import Group, quoted
from fleet_ett.rules.labels import CLUSTER, alert
from fleet_ett.rules.objectives import DEFAULT_CLUSTER
from fleet_ett.rules.ratios import BUDGET, OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.rules.groups import Alert
    from fleet_ett.rules.objectives import Burn, ClusterObjective, Objectives


def burn_group(objectives: Objectives) -> Group:
    """One alert a cluster and burn rate."""
    return Group("ett-burn-alerts", duration(objectives.interval_s), tuple(_alerts(objectives)))


def _alerts(objectives: Objectives) -> Iterator[Alert]:
    named = tuple(one.cluster for one in objectives.clusters if one.cluster != DEFAULT_CLUSTER)
    for one in objectives.clusters:
        chosen = f"={quoted(one.cluster)}"
        if one.cluster == DEFAULT_CLUSTER:
            chosen = f"!~{quoted('|'.join(name.replace('.', '[.]') for name in named))}" if named else '!=""'
        for burn in one.burns:
            yield _cluster_burn(objectives, one, burn, f"{{cluster{chosen}}}")
        if one.budgets:
            for burn in one.component_burns:
                yield _component_burn(objectives, one, burn, f"{{cluster{chosen}}}")


def _cluster_burn(objectives: Objectives, one: ClusterObjective, burn: Burn, chosen: str) -> Alert:
    lowest = 1 - burn.factor * (1 - one.ett)
    long, short = duration(burn.long_s), duration(burn.short_s)
    ratio = "cluster:ett_ratio_at_usual_mix:increase"
    return alert(
        objectives,
        "EttBudgetBurn",
        f"{ratio}{long}{chosen} < {lowest:.9g} and {ratio}{short}{chosen} < {lowest:.9g}"
        f" and cluster:{HELD.name}:increase{long}{chosen} >= {objectives.min_gpus * burn.long_s:.9g}",
        summary=f"ETT of {{{{ $labels.cluster }}}} is {{{{ $value | humanizePercentage }}}} over {long} at its usual"
        f" mix of teams; the objective is {one.ett * 100:.4g}%, its budget burns more than {burn.factor:.4g} times"
        " too fast",
        page=f"/v1/fleet/lost-time?by=component&{CLUSTER}",
        labels={"severity": burn.severity, "owner": one.owner, "objective": one.cluster, "window": long},
    )


def _component_burn(objectives: Objectives, one: ClusterObjective, burn: Burn, chosen: str) -> Alert:
    """What a mix shift took from the cluster is taken off what a component lost: the lesser claim of the two."""
    long, short = duration(burn.long_s), duration(burn.short_s)

    def burns(window: str) -> str:
        lost = f"cluster_component:ett_lost_ratio:increase{window}{chosen}"
        mix = f"clamp_max(cluster:ett_mix_change:increase{window}, 0)"
        own = f"(({lost} + on (cluster) group_left () {mix}) or {lost})"
        return f"{own} / {BUDGET} > {burn.factor:.9g}"

    held = f"cluster:{HELD.name}:increase{long}{chosen} >= {objectives.min_gpus * burn.long_s:.9g}"
    return alert(
        objectives,
        "EttComponentBudgetBurn",
        f"({burns(long)} and {burns(short)} and on (cluster) {held}) * on (component) group_left (owner) {OWNER}",
        summary=f"{{{{ $labels.component }}}} loses {{{{ $value | humanize }}}} times its budget of the GPU time of"
        f" {{{{ $labels.cluster }}}} over {long}",
        page=f"/v1/components/{{{{ $labels.component }}}}?{CLUSTER}",
        labels={"severity": burn.severity, "objective": one.cluster, "window": long},
    )
