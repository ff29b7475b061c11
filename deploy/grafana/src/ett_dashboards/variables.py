"""The choices at the top of a dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders.dashboard import (
    ConstantVariable,
    CustomVariable,
    DatasourceVariable,
    QueryVariable,
)
from grafana_foundation_sdk.models.dashboard import (
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from ett_dashboards.queries import POSTGRES, POSTGRES_TYPE, PROMETHEUS
from fleet_ett.rules.durations import duration

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models.dashboard import VariableModel

    from fleet_ett.rules.objectives import Objectives

ALL = VariableOption(selected=True, text="All", value="$__all")


def sources(objectives: Objectives, *, postgres: bool) -> list[Builder[VariableModel]]:
    """Where the data is, and where the service's pages are: other names than the provisioned ones can be chosen."""
    found: list[Builder[VariableModel]] = [_source("prometheus", "prometheus", "Prometheus")]
    if postgres:
        found.append(_source("postgres", POSTGRES_TYPE, "PostgreSQL"))
    return [*found, ConstantVariable("service").label("Address of the service").value(objectives.url)]


def cluster() -> QueryVariable:
    """Clusters that held a GPU; also those that come later."""
    return _names("cluster", "Cluster", "label_values(cluster:ett_held_gpu_seconds:total, cluster)")


def team() -> QueryVariable:
    """Teams of those clusters."""
    query = 'label_values(cluster_team:ett_held_gpu_seconds:total{cluster=~"$cluster"}, team)'
    return _names("team", "Team", query)


def window(objectives: Objectives) -> CustomVariable:
    """The windows that the recording rules have."""
    names = [duration(length) for length in objectives.windows_s]
    usual = "1d" if "1d" in names else names[-1]
    options = [VariableOption(selected=name == usual, text=name, value=name) for name in names]
    chosen = next(option for option in options if option.selected)
    listed = CustomVariable("window").label("Over the last").values(",".join(names))
    return listed.options(options).current(chosen).description("How far back each point of a ratio looks.")


def component() -> QueryVariable:
    """One component, by its taxonomy name."""
    query = "label_values(cluster_component:ett_lost_gpu_seconds:total, component)"
    found = (
        QueryVariable("component").label("Component").datasource(PROMETHEUS).query(query).definition(query)
    )
    usual = VariableOption(selected=True, text="checkpoint", value="checkpoint")
    return found.refresh(VariableRefresh.ON_DASHBOARD_LOAD).sort(VariableSort.ALPHABETICAL_ASC).current(usual)


def job() -> QueryVariable:
    """One job, the newest first; what is typed into the box searches in all of them."""
    query = (
        "SELECT job FROM report.jobs WHERE cluster ~ '^(${cluster:regex})$' AND job LIKE '$__searchFilter'"
        " ORDER BY start_ns DESC NULLS LAST LIMIT 500"
    )
    found = QueryVariable("job").label("Job").datasource(POSTGRES).query(query).definition(query)
    return found.refresh(VariableRefresh.ON_DASHBOARD_LOAD).allow_custom_value(True)


def _source(name: str, kind: str, label: str) -> DatasourceVariable:
    usual = VariableOption(selected=True, text=f"fleet-ett {label}", value=f"ett-{name}")
    return DatasourceVariable(name).label(label).type(kind).current(usual).hide(VariableHide.DONT_HIDE)


def _names(name: str, label: str, query: str) -> QueryVariable:
    found = QueryVariable(name).label(label).datasource(PROMETHEUS).query(query).definition(query)
    return (
        found.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(ALL)
    )
