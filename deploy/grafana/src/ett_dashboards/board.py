"""One dashboard put together: its frame, its rows of panels, its annotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery, Dashboard, Row
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

from ett_dashboards.links import TAG, all_dashboards
from ett_dashboards.queries import CLUSTER, CLUSTER_SQL, POSTGRES, PROMETHEUS, SqlQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models import dashboard

# Smaller incidents would cover the graphs with lines.
LEAST_GPU_HOURS = 1


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading."""

    title: str
    panels: Sequence[Builder[dashboard.Panel]]


@dataclass(frozen=True, slots=True)
class Board:
    """What makes a dashboard."""

    uid: str
    title: str
    text: str
    variables: Sequence[Builder[dashboard.VariableModel]]
    sections: Sequence[Section]
    annotations: Sequence[AnnotationQuery]
    since: str = "now-24h"

    def build(self) -> dashboard.Dashboard:
        """The dashboard as Grafana reads it; its panels are numbered in their order."""
        made = Dashboard(self.title).uid(self.uid).description(self.text).tags([TAG]).readonly()
        made.time(self.since, "now").refresh("1m").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR)
        made.link(all_dashboards())
        for variable in self.variables:
            made.with_variable(variable)
        for annotation in self.annotations:
            made.annotation(annotation)
        for section in self.sections:
            made.with_row(Row(section.title))
            for panel in section.panels:
                made.with_panel(panel)
        built = made.build()
        for number, one in enumerate(built.panels or [], start=1):
            one.id_val = number
        return built


def incidents(where: str = CLUSTER_SQL) -> AnnotationQuery:
    """What ended attempts, from its end to productive again, where it cost a GPU-hour or more."""
    query = SqlQuery(f"""
        SELECT at_ns / 1000000 AS time, (at_ns / 1e6 + (gap_s + restart_s + replay_s) * 1e3)::bigint AS timeend,
            job || ': ' || cause || ' (' || component || '), ' || round((gpu_s / 3600)::numeric, 1) || ' GPU-h' AS text,
            kind || ',' || cause AS tags
        FROM report.incidents
        WHERE $__unixEpochNanoFilter(at_ns) AND {where} AND gpu_s >= {LEAST_GPU_HOURS} * 3600
        ORDER BY gpu_s DESC LIMIT 100""")
    drawn = AnnotationQuery().name("Incidents").datasource(POSTGRES).enable(True).icon_color("red")
    return drawn.target(query)


def alerts() -> AnnotationQuery:
    """When alerts of the rules fired."""
    expr = (
        f'max by (alertname, cluster, component) (ALERTS{{alertname=~"Ett.*",alertstate="firing",{CLUSTER}}})'
    )
    drawn = (
        AnnotationQuery().name("Alerts").datasource(PROMETHEUS).enable(False).icon_color("orange").expr(expr)
    )
    return drawn.title_format("{{alertname}}").text_format("{{cluster}} {{component}}").step("60s")
