"""A file of objectives (YAML) as `Objectives`, checked; `deploy/prometheus/objectives.yaml` explains every key."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import yaml

from fleet_ett.core.taxonomy import DEFAULT
from fleet_ett.errors import Invalid
from fleet_ett.rules.durations import seconds
from fleet_ett.rules.objectives import (
    DEFAULT_CLUSTER,
    SEVERITIES,
    TICKET,
    Burn,
    ClusterObjective,
    Objectives,
    Regression,
    Telemetry,
)
from fleet_ett.rules.reach import check, usual_burns
from fleet_ett.rules.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPONENTS = (*DEFAULT.components, "other")
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
_WINDOWS = ["1h", "6h", "1d", "7d"]


def read_objectives(text: str) -> Objectives:
    """The objectives in a file's text. Raises `Invalid` for what cannot be read, and for what could never fire."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        msg = f"not YAML: {' '.join(str(error).split())}"
        raise Invalid(msg) from None
    root = Section(data, "")
    owner = root.text("owner", "training-sre")
    owners = _owners(root.section("owners"))
    defaults = Objectives((), owners, "", "", owner)
    windows = root.texts("windows", _WINDOWS)
    objectives = Objectives(
        clusters=_clusters(root.section("clusters"), owner),
        owners=owners,
        url=root.text("url", "http://127.0.0.1:8080").rstrip("/"),
        runbooks=root.text("runbooks", "file:deploy/runbooks").rstrip("/"),
        owner=owner,
        gpus_per_node=root.whole("gpus_per_node", 8, 1, 1024),
        min_gpus=root.number("min_gpus", 8, 0, 10_000_000),
        interval_s=root.seconds("evaluation_interval", defaults.interval_s),
        slow_interval_s=root.seconds("slow_evaluation_interval", defaults.slow_interval_s),
        gap_s=root.seconds("scrape_gap", defaults.gap_s),
        windows_s=tuple(sorted({seconds(one, "windows") for one in windows})),
        period_s=root.seconds("period", defaults.period_s),
        regression=_regression(root.section("regressions")),
        telemetry=_telemetry(root.section("telemetry")),
    )
    root.done()
    check(objectives)
    return objectives


def _owners(section: Section) -> Mapping[str, str]:
    told = {component: section.text(component, component) for component in _COMPONENTS}
    section.done()
    return told


def _clusters(section: Section, owner: str) -> tuple[ClusterObjective, ...]:
    names = list(section.keys())
    if DEFAULT_CLUSTER not in names:
        msg = f"clusters.{DEFAULT_CLUSTER}: expected, for clusters that come later"
        raise Invalid(msg)
    for name in names:
        if not _NAME.fullmatch(name):
            msg = f"clusters: {name!r:.60}: letters, digits and . _ - : / are expected"
            raise Invalid(msg)
    section_of = {name: section.section(name) for name in names}
    return tuple(_cluster(name, section_of[name], owner) for name in names)


def _cluster(name: str, section: Section, owner: str) -> ClusterObjective:
    ett = section.ratio("ett_pct", 0.9)
    told = section.section("budgets_pct")
    budgets = {one: told.ratio(one, 0.01) for one in _COMPONENTS if one in set(told.keys())}
    for one in told.keys():  # noqa: SIM118 - a section is no dict
        if one not in _COMPONENTS:
            raise told.wrong(one, f"one of {', '.join(_COMPONENTS)}", one)
    # the largest budget has the lowest limit of its burn rate; what one component loses wakes nobody
    component_burns = usual_burns(max(budgets.values())) if budgets else ()
    component_burns = tuple(replace(burn, severity=TICKET) for burn in component_burns)
    objective = ClusterObjective(
        cluster=name,
        ett=ett,
        owner=section.text("owner", owner),
        burns=_burns(section, "burn_rates", usual_burns(1 - ett)),
        budgets=budgets,
        component_burns=_burns(section, "component_burn_rates", component_burns),
    )
    section.done()
    return objective


def _burns(section: Section, key: str, defaults: tuple[Burn, ...]) -> tuple[Burn, ...]:
    out = []
    for place, row in enumerate(section.rows(key)):
        if not defaults:
            raise section.wrong(key, "budgets_pct", "none of them")
        usual = defaults[min(place, len(defaults) - 1)]
        severity = row.text("severity", usual.severity)
        if severity not in SEVERITIES:
            msg = f"{row.place('severity')}: {' or '.join(SEVERITIES)} is expected, not {severity!r:.60}"
            raise Invalid(msg)
        long_s, short_s = row.seconds("long", usual.long_s), row.seconds("short", usual.short_s)
        out.append(Burn(severity, long_s, short_s, row.number("factor", usual.factor, 0, 1e6)))
        row.done()
    return tuple(out) or defaults


def _regression(section: Section) -> Regression:
    usual = Regression()
    found = Regression(
        now_s=section.seconds("now", usual.now_s),
        past_s=section.seconds("past", usual.past_s),
        rise=section.number("rise_pct", usual.rise * 100, 1, 10_000) / 100,
        share=section.number("min_lost_pct", usual.share * 100, 0, 100) / 100,
        events=section.whole("min_events", usual.events, 1, 1_000_000),
        sigmas=section.number("sigmas", usual.sigmas, 1, 100),
        ett_drop=section.ratio("ett_drop_points", usual.ett_drop),
        persists_s=section.seconds("for", usual.persists_s),
    )
    section.done()
    return found


def _telemetry(section: Section) -> Telemetry:
    usual = Telemetry()
    found = Telemetry(
        absent_s=section.seconds("absent", usual.absent_s),
        unknown=section.ratio("unknown_pct", usual.unknown),
        attribution_lag_s=section.seconds("attribution_lag", usual.attribution_lag_s),
        ingest_lag_s=section.seconds("ingest_lag", usual.ingest_lag_s),
        refused=section.ratio("refused_pct", usual.refused),
        agent_behind_s=section.seconds("agent_behind", usual.agent_behind_s),
        stuck_gpus=section.whole("stuck_gpus", usual.stuck_gpus, 1, 10_000_000),
        stuck_s=section.seconds("stuck", usual.stuck_s),
        service_job=section.text("service_job", usual.service_job),
        agent_job=section.text("agent_job", usual.agent_job),
    )
    section.done()
    return found
