"""Burn rates that can fire: the usual ones for an objective, and the refusal of those that never would.

A budget is 1 - objective, a burn rate is lost share / budget, and at most everything is lost: no burn rate exceeds
1 / budget. At an objective of 90% that is 10, so the 14.4 of the SRE workbook (table 5-8) would never page; at 85% its
6 would need a fleet in which nothing trains at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.errors import Invalid
from fleet_ett.rules.durations import duration
from fleet_ett.rules.objectives import PAGE, TICKET, Burn

if TYPE_CHECKING:
    from fleet_ett.rules.objectives import ClusterObjective, Objectives

# severity, long and short window (s), how far between 1 and the highest burn rate, the workbook's factor.
# At 90% that is ETT below 50%, 75% and 88%.
_USUAL = (
    (PAGE, 3600, 300, 4 / 9, 14.4),
    (PAGE, 6 * 3600, 1800, 1 / 6, 6.0),
    (TICKET, 3 * 86_400, 6 * 3600, 1 / 45, 1.2),
)
# A fleet below this is down, not burning: an alert that waits for it comes too late.
_FLOOR = 0.05
_SAMPLES = 4  # that a window must hold


def usual_burns(budget: float) -> tuple[Burn, ...]:
    """Burn rates for a budget (0..1) that all can fire."""
    return tuple(
        Burn(severity, long_s, short_s, round(min(most, 1 + part * (1 / budget - 1)), 3))
        for severity, long_s, short_s, part, most in _USUAL
    )


def check(objectives: Objectives) -> None:
    """Raise `Invalid`, with the reason, for settings under which an alert could never fire, or would always."""
    for cluster in objectives.clusters:
        where = f"clusters.{cluster.cluster}"
        for burn in cluster.burns:
            _check_burn(burn, 1 - cluster.ett, f"{where}.burn_rates", f"an objective of {cluster.ett:.4g}")
        for burn in cluster.component_burns:
            for component, budget in cluster.budgets.items():
                told = f"a budget of {budget:.4g} for {component}"
                _check_burn(burn, budget, f"{where}.component_burn_rates", told)
        _check_budgets(cluster, where)
    _check_windows(objectives)


def _check_burn(burn: Burn, budget: float, where: str, told: str) -> None:
    highest = 1 / budget
    if burn.factor * budget >= 1 - 1e-9:
        msg = (
            f"{where}: {burn.factor:g} over {duration(burn.long_s)} can never fire: with {told} the burn rate "
            f"is at most 1 / {budget:.4g} = {highest:.4g}, when all time is lost; choose less, or leave burn rates out"
        )
        raise Invalid(msg)
    if 1 - burn.factor * budget < _FLOOR:
        msg = (
            f"{where}: {burn.factor:g} over {duration(burn.long_s)} fires only when {burn.factor * budget:.1%} of all "
            f"time is lost ({told}): that is a fleet that stands still; choose less, or leave burn rates out"
        )
        raise Invalid(msg)
    if burn.factor < 1:
        msg = (
            f"{where}: {burn.factor:g} over {duration(burn.long_s)} fires although the objective is met: "
            "1 spends the budget exactly"
        )
        raise Invalid(msg)
    if burn.short_s >= burn.long_s:
        msg = f"{where}: the short window ({duration(burn.short_s)}) must be shorter than {duration(burn.long_s)}"
        raise Invalid(msg)


def _check_budgets(cluster: ClusterObjective, where: str) -> None:
    spent, budget = sum(cluster.budgets.values()), 1 - cluster.ett
    if spent > budget * (1 + 1e-9):
        msg = (
            f"{where}.budgets_pct: the components may lose {spent:.4g} of the time together, but an objective of "
            f"{cluster.ett:.4g} leaves {budget:.4g}: with every budget kept the objective would be missed"
        )
        raise Invalid(msg)


def _check_windows(objectives: Objectives) -> None:
    shortest = _SAMPLES * objectives.interval_s
    for length_s in (*objectives.burn_windows_s, *objectives.windows_s):
        if length_s < shortest:
            msg = (
                f"a window of {duration(length_s)} holds too few evaluations: at least {_SAMPLES} x "
                f"{duration(objectives.interval_s)} (evaluation_interval)"
            )
            raise Invalid(msg)
    if max(*objectives.burn_windows_s, *objectives.windows_s) >= objectives.period_s:
        msg = f"every window must be shorter than the period of the budget ({duration(objectives.period_s)})"
        raise Invalid(msg)
    regression = objectives.regression
    if regression.past_s < 2 * regression.now_s:
        msg = (
            f"regressions: past ({duration(regression.past_s)}) must be at least twice now "
            f"({duration(regression.now_s)}): a past as short as that is no measure"
        )
        raise Invalid(msg)
    if regression.persists_s >= regression.now_s:
        msg = (
            f"regressions.for ({duration(regression.persists_s)}) must be shorter than now "
            f"({duration(regression.now_s)}): what happened once has left the window by then, and nothing fires"
        )
        raise Invalid(msg)
    if 2 * max(objectives.interval_s, objectives.slow_interval_s) > 600:
        msg = "evaluation intervals must not exceed 5m: Prometheus forgets a sample after that, and rules see gaps"
        raise Invalid(msg)
