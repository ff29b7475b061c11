"""What panels ask: PromQL of Prometheus, SQL of the views in the schema `report`."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from grafana_foundation_sdk.builders.prometheus import Dataquery as Prom
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

POSTGRES_TYPE = "grafana-postgresql-datasource"
PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${prometheus}")
POSTGRES = DataSourceRef(type_val=POSTGRES_TYPE, uid="${postgres}")

# Which series a panel is about. The names of clusters and teams come from the variables.
CLUSTER = 'cluster=~"$cluster"'
TEAM = f'{CLUSTER},team=~"$team"'
# The same in SQL: a regular expression, as "All" has to be one for Prometheus.
CLUSTER_SQL = "cluster ~ '^(${cluster:regex})$'"
TEAM_SQL = f"{CLUSTER_SQL} AND team ~ '^(${{team:regex}})$'"


def once(metric: str, labels: str, select: str = CLUSTER) -> str:
    """The series of a family with every replica of the service counted once."""
    return f"max by ({labels}) ({metric}{{{select}}})"


def increase(series: str, span: str = "$__range", step: str = "5m") -> str:
    """How much counters rose over a span, from steps: cheap over weeks, and `series` may be any expression."""
    return f"increase(({series})[{span}:{step}])"


def ratio(part: str, whole: str) -> str:
    """A ratio of sums; no sample where there is nothing to divide by."""
    return f"{part} / ({whole} > 0)"


def over_time(expr: str, legend: str = "", *, ref: str = "A") -> Prom:
    """A query for a graph."""
    return _prom(expr, legend, ref).range().format(PromQueryFormat.TIME_SERIES)


def now(expr: str, legend: str = "", *, ref: str = "A") -> Prom:
    """A query for the values at the end of the time range."""
    return _prom(expr, legend, ref).instant().format(PromQueryFormat.TIME_SERIES)


def rows(expr: str, *, ref: str = "A") -> Prom:
    """A query for a table: one row a series, its labels as columns."""
    return _prom(expr, "", ref).instant().format(PromQueryFormat.TABLE)


def _prom(expr: str, legend: str, ref: str) -> Prom:
    query = Prom().datasource(PROMETHEUS).ref_id(ref).expr(expr).editor_mode(QueryEditorMode.CODE)
    return query.legend_format(legend) if legend else query


class Sql(variants.Dataquery):
    """A query of the PostgreSQL data source, which the SDK has no type for."""

    def __init__(self, sql: str = "", shape: str = "table", ref_id: str | None = None) -> None:
        self.sql, self.shape, self.ref_id = sql, shape, ref_id

    def to_json(self) -> dict[str, object]:
        """As the data source's editor saves it."""
        return {
            "datasource": POSTGRES,
            "editorMode": "code",
            "format": self.shape,
            "rawQuery": True,
            "rawSql": self.sql,
            "refId": self.ref_id,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Sql:
        """The query that `to_json` wrote."""
        return cls(data["rawSql"], data["format"], data["refId"])


class SqlQuery(Builder[Sql]):
    """What panels and annotations take."""

    def __init__(self, sql: str, *, shape: str = "table", ref: str = "A") -> None:
        self._query = Sql(dedent(sql).strip(), shape, ref)

    def build(self) -> Sql:
        """The query itself."""
        return self._query
