"""Which failures are measured, with which settings, and the table of what the way to the message took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from fleet_ett.rules.objectives import DEFAULT_CLUSTER
from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import render
from tests.bench.alarm_stages import PROGRAMS, STAGES, Failure, Setting
from tests.bench.evaluation import DEPLOY, SHIPPED

if TYPE_CHECKING:
    from fleet_ett.rules.objectives import Objectives

GOAL_S = 10  # for the programs alone: books of a batch may take 5 s
SHORT_OBJECTIVES = """
url: http://ett
clusters:
  default: {ett_pct: 90, burn_rates: [{severity: page, long: 12s, short: 6s, factor: 5}]}
windows: [12s, 30s]
period: 5m
evaluation_interval: 1s
slow_evaluation_interval: 5s
scrape_gap: 10s
regressions: {now: 60s, past: 5m, for: 30s}
telemetry: {absent: 2s, stuck: 2s}
"""


def short() -> tuple[Setting, list[Failure]]:
    """Seconds instead of minutes everywhere: what is left is what the programs need."""
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    route = {"receiver": "hook", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"}
    objectives = read_objectives(SHORT_OBJECTIVES)
    setting = Setting(
        title="short intervals (scrape 1s, evaluation 1s)",
        hang_s=5,
        train_s=15,
        rules=render(objectives),
        prometheus={"global": every, "rule_files": ["rules.yaml"]},
        alertmanager={"route": route, "receivers": [{"name": "hook"}]},
        group_wait_s=0,
    )
    return setting, failures(objectives, setting)


def shipped() -> tuple[Setting, list[Failure]]:
    """The rules, prometheus.yml and alertmanager.yml of `deploy/` but for addresses; the service judges sooner."""
    manager: dict[str, Any] = yaml.safe_load(
        (DEPLOY.parent / "alertmanager" / "alertmanager.yml").read_text()
    )
    every = SHIPPED["global"]
    setting = Setting(
        title=f"intervals as shipped (scrape {every['scrape_interval']}, evaluation {every['evaluation_interval']})",
        hang_s=20,
        train_s=1,
        rules=(DEPLOY / "rules.yaml").read_text(),
        prometheus={"global": every, "rule_files": ["rules.yaml"]},
        alertmanager=manager,
        group_wait_s=int(manager["route"]["group_wait"].removesuffix("s")),
    )
    return setting, failures(read_objectives((DEPLOY / "objectives.yaml").read_text()), setting)


def failures(objectives: Objectives, setting: Setting) -> list[Failure]:
    """A job that hangs, a job that waits for data, events that are refused."""
    told = objectives.telemetry
    usual = next(one for one in objectives.clusters if one.cluster == DEFAULT_CLUSTER)
    burn = usual.burns[0]
    lowest = 1 - burn.factor * (1 - usual.ett)
    hour = min(objectives.windows_s)
    stuck = 'ett_gpus_without_progress{cluster="hangs",team="t"}'
    waited = 'ett_gpu_seconds_total{cluster="waits",team="t",heading="data_wait"}'
    refused = 'ett_events_total{result="quarantined"}'

    def ratio(window: int) -> str:
        useful, held = (
            f'sum(increase(ett_gpu_seconds_total{{cluster="waits"{only}}}[{window}s]))'
            for only in (',heading="productive"', "")
        )
        return f"({useful} / {held} < {lowest:.9g})"

    return [
        Failure(
            "EttJobsStuck", {"cluster": "hangs"}, "hangs", "unknown", stuck, f"{stuck} >= {told.stuck_gpus}",
            known_s=setting.hang_s, for_s=told.stuck_s, patient=told.stuck_s < 60,
        ),
        Failure(
            "EttBudgetBurn", {"cluster": "waits", "severity": "page"}, "waits", "data_wait", waited,
            f"{ratio(burn.long_s)} and {ratio(burn.short_s)}",
        ),
        Failure(
            "EttEventsRefused", {}, None, "", refused,
            f"sum(increase({refused}[{hour}s])) / sum(increase(ett_events_total[{hour}s])) > {told.refused:.9g}",
            for_s=told.absent_s, patient=told.absent_s < 60,
        ),
    ]  # fmt: skip


def report(setting: Setting, found: list[Failure]) -> bool:
    """Print the table; whether the programs kept within their goal."""
    print(f"\n{setting.title}, ETT_HANG_S={setting.hang_s}, group_wait {setting.group_wait_s}s")
    print(f"{'seconds after the failure':44}" + "".join(f"{one.alert:>20}" for one in found))
    for stage in STAGES:
        cells = (f"{one.reached[stage]:.1f}" if stage in one.reached else "-" for one in found)
        print(f"{stage:44}" + "".join(f"{cell:>20}" for cell in cells))
    took = [one.took(setting.group_wait_s) for one in found]
    for whose in took[0]:
        cells = (f"{one[whose]:.1f} ({one[whose] / sum(one.values()):.0%})" for one in took)
        goal = f", goal <= {GOAL_S} s" if whose == PROGRAMS else ""
        print(f"{'of that ' + whose + goal:44}" + "".join(f"{cell:>20}" for cell in cells))
    return all(one[PROGRAMS] <= GOAL_S for one in took)
