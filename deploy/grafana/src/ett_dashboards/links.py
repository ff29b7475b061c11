"""Where panels lead: to the service's own pages, and from one dashboard to the next."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import DashboardLink
from grafana_foundation_sdk.models.dashboard import DashboardLinkType

TAG = "fleet-ett"
# The dashboards' ids, which their addresses are made of.
FLEET, LOST, RESTARTS = "ett-fleet", "ett-lost-time", "ett-restarts"
JOB, COMPONENT, COLLECTORS = "ett-job", "ett-component", "ett-collectors"
# The time range of the dashboard as the service's paths take it.
WINDOW = "from=${__from:date:iso}&to=${__to:date:iso}"
_KEPT = "${cluster:queryparam}&${__url_time_range}"


def page(path: str, title: str) -> DashboardLink:
    """To a path of the service."""
    return _link("${service}" + path, title, new_tab=True)


def to_job(field: str = "job") -> DashboardLink:
    """From a row to the dashboard of the job in one of its columns."""
    value = "${__data.fields." + field + ":percentencode}"
    return _link(f"/d/{JOB}?var-job={value}&{_KEPT}", "The job")


def to_component(field: str = "component") -> DashboardLink:
    """From a row to the dashboard of the component in one of its columns."""
    value = "${__data.fields." + field + ":percentencode}"
    return _link(f"/d/{COMPONENT}?var-component={value}&{_KEPT}", "The component")


def to_all_of_it() -> DashboardLink:
    """From the row of a job to the time range of its whole life, which the row has in ms."""
    times = "from=${__data.fields.from_ms}&to=${__data.fields.to_ms}"
    return _link(f"/d/{JOB}?var-job=${{job:percentencode}}&{times}&${{cluster:queryparam}}", "Show all of it")


def of_series(label: str = "component") -> DashboardLink:
    """From a line or bar to the dashboard of the component in its label."""
    value = "${__field.labels." + label + ":percentencode}"
    return _link(f"/d/{COMPONENT}?var-component={value}&{_KEPT}", "The component")


def all_dashboards() -> DashboardLink:
    """The bar at the top."""
    bar = DashboardLink("fleet-ett").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    return bar.as_dropdown(False).include_vars(True).keep_time(True)


def _link(url: str, title: str, *, new_tab: bool = False) -> DashboardLink:
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).target_blank(new_tab)
