"""Thresholds from the objectives: the colors of a panel change where alerts do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ett_dashboards.panels import GREEN, ORANGE, RED, YELLOW
from fleet_ett.rules.durations import duration
from fleet_ett.rules.objectives import DEFAULT_CLUSTER, PAGE

if TYPE_CHECKING:
    from ett_dashboards.panels import Steps
    from fleet_ett.rules.objectives import ClusterObjective, Objectives

QUARTER_LEFT = 0.25


def default(objectives: Objectives) -> ClusterObjective:
    """The objective of every cluster that has none of its own."""
    return next(one for one in objectives.clusters if one.cluster == DEFAULT_CLUSTER)


def ett(objectives: Objectives) -> Steps:
    """ETT: green from the objective on, yellow, orange and red below where tickets are made and people paged."""
    one = default(objectives)
    levels = [(1 - burn.factor * (1 - one.ett), burn.severity) for burn in one.burns]
    pages = sorted(level for level, severity in levels if severity == PAGE)
    steps: Steps = [(None, RED)]
    if len(pages) > 1:
        steps.append((round(pages[0], 4), ORANGE))
    if pages:
        steps.append((round(pages[-1], 4), YELLOW))
    return [*steps, (one.ett, GREEN)]


def burn() -> Steps:
    """A burn rate: at 1 the budget lasts exactly for its period."""
    return [(None, GREEN), (1, RED)]


def budget_left() -> Steps:
    """A budget that is left: red when it is spent."""
    return [(None, RED), (0, YELLOW), (QUARTER_LEFT, GREEN)]


def at_most(limit: float) -> Steps:
    """Red from the limit on at which an alert would fire."""
    return [(None, GREEN), (limit, RED)]


def excess(objectives: Objectives) -> Steps:
    """Observed / expected: red from the rise on that is a regression."""
    return [(None, GREEN), (1, YELLOW), (1 + objectives.regression.rise, RED)]


def period(objectives: Objectives) -> str:
    """The period of the budgets, as the names of recorded series have it."""
    return duration(objectives.period_s)


def recent(objectives: Objectives) -> str:
    """The window in which regressions are looked for."""
    return duration(objectives.regression.now_s)
