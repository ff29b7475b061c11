"""ETT and lost shares over each window, as ratios of sums; objectives, budgets and owners as series.

A ratio without GPU time has no sample. `cluster:ett_ratio_at_usual_mix` is ETT without what only comes from a shift
between teams whose own ETT is as ever: E - sum of (w1 - w0) x ((e1 + e0) / 2 - (E1 + E0) / 2) over the teams that the
reference window knows (midpoint split, Kitagawa 1955), where w is a team's share of the GPU time and 0 the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.rules.counters import HELD, INDUCED, LOST, PRODUCTIVE
from fleet_ett.rules.durations import duration
from fleet_ett.rules.groups import Group, Record, quoted
from fleet_ett.rules.objectives import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.rules.objectives import Objectives

_HOUR_S = 3600
OWNER = "component:ett_owner:info"
OBJECTIVE = "cluster:ett_objective:ratio"
BUDGET = "cluster_component:ett_budget:ratio"


def ratio_groups(objectives: Objectives) -> Iterator[Group]:
    """What the objectives say, then one group a window, and the period of the budget."""
    quick, slow = duration(objectives.interval_s), duration(objectives.slow_interval_s)
    yield Group("ett-objectives", quick, tuple(_promises(objectives)))
    lengths = sorted({*objectives.windows_s, *objectives.burn_windows_s})
    for length_s in lengths:
        window, reference = duration(length_s), duration(objectives.reference_s)
        rules = [*_sums(window), *_shares(window)]
        if length_s in objectives.burn_windows_s or length_s == objectives.regression.now_s:
            rules += _at_usual_mix(window, reference)
        yield Group(f"ett-{window}", quick if length_s <= _HOUR_S else slow, tuple(rules))
    yield Group("ett-budget", slow, tuple(_budget(duration(objectives.period_s))))


def _promises(objectives: Objectives) -> Iterator[Record]:
    """A named cluster has its own objective and budgets; any other that exists has the default ones."""
    for component, owner in objectives.owners.items():
        yield Record(OWNER, "vector(1)", {"component": component, "owner": owner})
    exists = f"max by (cluster) ({HELD.series})"
    named = [one for one in objectives.clusters if one.cluster != DEFAULT_CLUSTER]
    others = [one for one in objectives.clusters if one.cluster == DEFAULT_CLUSTER]
    for one in named:
        yield Record(OBJECTIVE, f"vector({one.ett:.12g})", {"cluster": one.cluster})
        for component, budget in one.budgets.items():
            yield Record(BUDGET, f"vector({budget:.12g})", {"cluster": one.cluster, "component": component})
    for one in others:
        known = "".join(
            f" unless on (cluster) {OBJECTIVE}{{cluster={quoted(other.cluster)}}}" for other in named
        )
        yield Record(OBJECTIVE, f"0 * {exists} + {one.ett:.12g}{known}")
        for component, budget in one.budgets.items():
            yield Record(BUDGET, f"0 * {exists} + {budget:.12g}{known}", {"component": component})


def _sums(window: str) -> Iterator[Record]:
    for one in (HELD, PRODUCTIVE):
        yield Record(f"cluster_team:{one.name}:increase{window}", f"increase({one.series}[{window}])")
        yield Record(
            f"cluster:{one.name}:increase{window}",
            f"sum by (cluster) (cluster_team:{one.name}:increase{window})",
        )
    for level in ("cluster_team", "cluster"):
        yield Record(
            f"{level}:ett_ratio:increase{window}",
            f"{level}:{PRODUCTIVE.name}:increase{window} / ({level}:{HELD.name}:increase{window} > 0)",
        )


def _shares(window: str) -> Iterator[Record]:
    held = f"(cluster:{HELD.name}:increase{window} > 0)"
    for one, name in ((LOST, "ett_lost_ratio"), (INDUCED, "ett_induced_ratio")):
        yield Record(
            f"cluster_component:{name}:increase{window}",
            f"increase({one.series}[{window}]) / on (cluster) group_left () {held}",
        )
    lost = f"cluster_component:ett_lost_ratio:increase{window}"
    yield Record(f"cluster_component:ett_ratio:increase{window}", f"1 - {lost}")


def _at_usual_mix(window: str, reference: str) -> Iterator[Record]:
    share = "cluster_team:ett_share:increase"
    yield Record(
        f"{share}{window}",
        f"cluster_team:{HELD.name}:increase{window}"
        f" / on (cluster) group_left () (cluster:{HELD.name}:increase{window} > 0)",
    )
    before = f"offset {window}"
    usual_share = (
        f"(cluster_team:{HELD.name}:increase{reference} {before}"
        f" / on (cluster) group_left () (cluster:{HELD.name}:increase{reference} {before} > 0))"
    )
    usual = f"cluster_team:ett_ratio:increase{reference} {before}"
    whole, usual_whole = (
        f"cluster:ett_ratio:increase{window}",
        f"cluster:ett_ratio:increase{reference} {before}",
    )
    yield Record(
        f"cluster:ett_mix_change:increase{window}",
        f"sum by (cluster) (({share}{window} - {usual_share})"
        f" * (((cluster_team:ett_ratio:increase{window} or {usual}) + {usual}) / 2"
        f" - on (cluster) group_left () ({whole} + {usual_whole}) / 2))",
    )
    yield Record(
        f"cluster:ett_ratio_at_usual_mix:increase{window}",
        f"({whole} - cluster:ett_mix_change:increase{window}) or {whole}",
    )


def _budget(period: str) -> Iterator[Record]:
    """How much of a period's budget is left: 1 all, 0 none, below 0 the objective is missed."""
    held = f"(increase(cluster:{HELD.name}:total[{period}]) > 0)"
    useful = f"increase(cluster:{PRODUCTIVE.name}:total[{period}])"
    yield Record(f"cluster:ett_ratio:increase{period}", f"{useful} / {held}")
    yield Record(
        f"cluster:ett_budget_left:{period}",
        f"1 - (1 - cluster:ett_ratio:increase{period}) / (1 - {OBJECTIVE})",
    )
    yield Record(
        f"cluster_component:ett_budget_left:{period}",
        f"1 - increase({LOST.series}[{period}]) / on (cluster) group_left () {held} / {BUDGET}",
    )
