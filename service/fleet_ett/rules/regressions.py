"""Alerts on components that are worse than their own past, whatever the mix of teams has become.

Each measure is an amount per exposure: GPU time per start, per restart, per time held, failures per node-day.
What is to be expected now is the past's amount per exposure x the exposure now x a factor for the mix: what the teams'
own past rates come to with the exposure that each has now, against what they came to then (indirect standardisation).
An alert needs magnitude (above the expected by `rise`), weight (a share of all GPU time; for failures the Poisson
spread), enough events in both times, and persistence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet_ett.rules import counters
from fleet_ett.rules.durations import duration
from fleet_ett.rules.groups import Group, Record
from fleet_ett.rules.labels import CLUSTER, alert
from fleet_ett.rules.objectives import TICKET
from fleet_ett.rules.ratios import OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.rules.counters import Total
    from fleet_ett.rules.groups import Alert
    from fleet_ett.rules.objectives import Objectives

_DAY_S = 86_400
_EXPECTED, _OBSERVED = (
    "cluster_component:ett_expected:regression",
    "cluster_component:ett_observed:regression",
)


@dataclass(frozen=True, slots=True)
class Measure:
    """An amount by component per exposure of the cluster, and the same by team, which tells the mix."""

    name: str
    alert: str
    amount: Total
    exposure: Total
    team_amount: Total
    team_exposure: Total
    text: str
    counted: bool  # whether the exposure is a number of events


MEASURES = (
    Measure(
        "time_to_start", "EttTimeToStartRegressed", counters.C_FIRST, counters.STARTS,
        counters.T_STARTUP, counters.T_ATTEMPTS, "first starts cost", counted=True,
    ),
    Measure(
        "time_to_restart", "EttTimeToRestartRegressed", counters.C_AGAIN, counters.RESTARTS,
        counters.T_STARTUP, counters.T_ATTEMPTS, "restarts cost", counted=True,
    ),
    Measure(
        "replay", "EttReplayRegressed", counters.C_REPLAY, counters.RESTARTS,
        counters.T_REPLAY, counters.T_ATTEMPTS, "steps trained again cost", counted=True,
    ),
    Measure(
        "compile", "EttCompileTimeRegressed", counters.C_COMPILE, counters.T_ATTEMPTS,
        counters.T_COMPILE, counters.T_ATTEMPTS, "compilation costs", counted=True,
    ),
    Measure(
        "blocking_saves", "EttBlockingSavesRegressed", counters.C_SAVES, counters.HELD,
        counters.T_SAVES, counters.HELD, "blocking saves cost", counted=False,
    ),
    Measure(
        "failures", "EttFailuresRegressed", counters.C_FAILURES, counters.HELD,
        counters.T_ATTEMPTS, counters.HELD, "failures", counted=False,
    ),
)  # fmt: skip


def regression_groups(objectives: Objectives) -> Iterator[Group]:
    """What was to be expected and what came, then the alerts."""
    slow = duration(objectives.slow_interval_s)
    for one in MEASURES:
        yield Group(f"ett-regression-{one.name}", slow, tuple(_records(one, objectives)))
    yield Group("ett-regression-alerts", slow, tuple(_alerts(objectives)))


def _records(one: Measure, objectives: Objectives) -> Iterator[Record]:
    now = f"[{duration(objectives.regression.now_s)}]"
    past = f"[{duration(objectives.regression.past_s)}] offset {duration(objectives.regression.now_s)}"
    labels = {"measure": one.name}

    def of_cluster(total: Total, when: str) -> str:
        return f"sum by (cluster) (increase({total.series}{when}))"

    amount, exposure = one.team_amount.series, one.team_exposure.series
    known = f"(increase({exposure}{past}) > 0)"
    mix_now = (
        f"sum by (cluster) (increase({amount}{past}) / {known} * increase({exposure}{now}))"
        f" / (sum by (cluster) (increase({exposure}{now}) and {known}) > 0)"
    )
    mix_past = f"sum by (cluster) (increase({amount}{past}) and {known}) / sum by (cluster) ({known})"
    yield Record("cluster:ett_mix_factor:regression", f"({mix_now}) / (({mix_past}) > 0)", labels)
    enough = objectives.regression.events if one.counted else 0
    compare = f">= {enough}" if enough else "> 0"
    # half an event more in the past: a component that never failed before is expected to fail hardly ever, not never
    had = f"increase({one.amount.series}{past})" + (" + 0.5" if one.name == "failures" else "")
    mix = f'(cluster:ett_mix_factor:regression{{measure="{one.name}"}})'
    yield Record(_OBSERVED, f"increase({one.amount.series}{now})", labels)
    yield Record(
        _EXPECTED,
        f"({had}) / on (cluster) group_left () ({of_cluster(one.exposure, past)} {compare})"
        f" * on (cluster) group_left () ({of_cluster(one.exposure, now)} {compare})"
        f" * on (cluster) group_left () {mix}",
        labels,
    )


def _alerts(objectives: Objectives) -> Iterator[Alert]:
    told = objectives.regression
    now, past = duration(told.now_s), duration(told.past_s)
    yield alert(
        objectives,
        "EttRegressed",
        f"cluster:ett_ratio_at_usual_mix:increase{now} - cluster:ett_ratio:increase{duration(objectives.reference_s)}"
        f" offset {now} < -{told.ett_drop:.9g}"
        f" and cluster:{counters.HELD.name}:increase{now} >= {objectives.min_gpus * told.now_s:.9g}",
        summary=f"ETT of {{{{ $labels.cluster }}}} fell by {{{{ $value | humanizePercentage }}}} in the last {now}"
        f" against the {duration(objectives.reference_s)} before, with the mix of teams left out",
        page=f"/v1/fleet/lost-time?by=component&{CLUSTER}",
        persists_s=told.persists_s,
        labels={"severity": TICKET, "owner": objectives.owner},
    )
    for one in MEASURES:
        yield _alert(one, objectives, now, past)


def _alert(one: Measure, objectives: Objectives, now: str, past: str) -> Alert:
    told = objectives.regression
    chosen = f'{{measure="{one.name}"}}'
    excess = f"({_OBSERVED}{chosen} - {_EXPECTED}{chosen})"
    held = f"sum by (cluster) (increase({counters.HELD.series}[{now}]))"
    if one.name == "failures":
        heavy = f"{excess} > {told.sigmas:.9g} * sqrt({_EXPECTED}{chosen})"
        per = _DAY_S * objectives.gpus_per_node * 1000
        value = f"{per:.9g} * {_OBSERVED}{chosen} / on (cluster) group_left () ({held} > 0)"
        text = (
            f"{{{{ $labels.component }}}} makes attempts of {{{{ $labels.cluster }}}} fail {{{{ $value | humanize }}}}"
            f" times in 1,000 node-days over {now}, more than chance and its past ({past}) allow"
        )
    else:
        heavy = f"{excess} > on (cluster) group_left () {told.share:.9g} * {held}"
        value = f"{_OBSERVED}{chosen} / {_EXPECTED}{chosen}"
        text = (
            f"{one.text} {{{{ $labels.component }}}} of {{{{ $labels.cluster }}}} {{{{ $value | humanize }}}} times"
            f" what its past ({past}) lets expect"
        )
    return alert(
        objectives,
        one.alert,
        f"({value} and {excess} > {told.rise:.9g} * {_EXPECTED}{chosen} and {heavy})"
        f" * on (component) group_left (owner) {OWNER}",
        summary=text,
        page=f"/v1/components/{{{{ $labels.component }}}}?{CLUSTER}",
        persists_s=told.persists_s,
        labels={"severity": TICKET},
    )
