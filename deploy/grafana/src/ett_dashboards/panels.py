"""Panels with what every one of them has: a description, a unit, limits, a link, a word for when there is nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import bargauge, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    LineStyle,
    ReduceDataOptions,
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grafana_foundation_sdk.builders.dashboard import DashboardLink
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.cog.variants import Dataquery

    Query: TypeAlias = Builder[Dataquery]

# Units of Grafana; GPU time has none of its own.
SHARE, SECONDS, GPU_HOURS, GPUS, COUNT = "percentunit", "s", "suffix:GPU-h", "suffix:GPUs", "short"
RED, ORANGE, YELLOW, GREEN, NEUTRAL = "red", "orange", "yellow", "green", "blue"
# From a value on, in this color; the first begins at nothing.
Steps = list[tuple[float | None, str]]
PLAIN: Steps = [(None, NEUTRAL)]
QUIET = "Nothing in this time range"

P = TypeVar("P", stat.Panel, timeseries.Panel, table.Panel, bargauge.Panel, statetimeline.Panel)


@dataclass(frozen=True, slots=True)
class Words:
    """What a panel says of itself. `none`: instead of a value where there is none."""

    title: str
    text: str
    none: str = QUIET


@dataclass(frozen=True, slots=True)
class Look:
    """How a graph is drawn. `limits`: thresholds are lines; `dashed`: names (a regular expression) that are limits."""

    stacked: bool = False
    columns: bool = False
    limits: bool = False
    dashed: str = ""
    most: float | None = None
    colors: Mapping[str, str] = field(default_factory=dict)


LINES, LIMITED, STACKED = Look(), Look(limits=True), Look(stacked=True)
COLUMNS = Look(stacked=True, columns=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table by its name. `bar`: drawn as a bar in its cell; `link`: where a click leads.

    `value_of`: the query (A, B) whose values it holds, where Prometheus is asked; else it is a label.
    """

    name: str
    unit: str = "string"
    value_of: str = ""
    steps: Steps | None = None
    bar: bool = False
    link: DashboardLink | None = None
    decimals: int | None = None
    hidden: bool = False


def number(
    words: Words, query: Query, *, unit: str, link: DashboardLink, steps: Steps = PLAIN, width: int = 4,
    decimals: int | None = None,
) -> stat.Panel:  # fmt: skip
    """One figure."""
    panel = dressed(stat.Panel(), words, [query], unit, link, steps).span(width).height(4)
    panel.reduce_options(ReduceDataOptions().calcs(["lastNotNull"])).text_mode(common.BigValueTextMode.VALUE)
    if decimals is not None:
        panel.decimals(decimals)
    return panel.color_mode(common.BigValueColorMode.VALUE).graph_mode(common.BigValueGraphMode.NONE)


def word(words: Words, query: Query, *, link: DashboardLink, width: int = 4) -> stat.Panel:
    """The name of a series as text."""
    panel = number(words, query, unit="string", link=link, width=width)
    return panel.text_mode(common.BigValueTextMode.NAME)


def graph(
    words: Words, queries: Sequence[Query], *, unit: str, link: DashboardLink, steps: Steps = PLAIN, width: int = 12,
    look: Look = LINES,
) -> timeseries.Panel:  # fmt: skip
    """Values over time."""
    panel = dressed(timeseries.Panel(), words, queries, unit, link, steps).span(width).height(9)
    panel.color_scheme(FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC)).min(0)
    panel.show_points(common.VisibilityMode.AUTO).span_nulls(False).line_width(2)
    panel.legend(
        VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.RIGHT if width > 12 else common.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull"])
        .show_legend(True)
    )
    panel.tooltip(VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    if look.most is not None:
        panel.max(look.most)
    if look.stacked:
        panel.stacking(StackingConfig().mode(common.StackingMode.NORMAL).group("A")).line_width(1)
        panel.fill_opacity(40)
    if look.columns:
        panel.draw_style(common.GraphDrawStyle.BARS).fill_opacity(70)
    if look.limits:
        panel.thresholds_style(GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED))
    for name, color in look.colors.items():
        panel.override_by_name(name, [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})])
    if look.dashed:
        style = LineStyle().fill("dash").dash([8.0, 8.0]).build()
        panel.override_by_regexp(
            look.dashed,
            [
                DynamicConfigValue("custom.lineStyle", style),
                DynamicConfigValue("custom.lineWidth", 1),
                DynamicConfigValue("custom.fillOpacity", 0),
                DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "text"}),
            ],
        )
    return panel


def bars(
    words: Words, query: Query, *, unit: str, link: DashboardLink, steps: Steps = PLAIN, values: bool = False,
) -> bargauge.Panel:  # fmt: skip
    """The largest first, as bars. `values`: they are rows and not series."""
    panel = dressed(bargauge.Panel(), words, [query], unit, link, steps).span(12).height(9).min(0)
    reduced = ReduceDataOptions().calcs(["lastNotNull"]).values(values)
    panel.reduce_options(reduced).orientation(common.VizOrientation.HORIZONTAL)
    return panel.display_mode(common.BarGaugeDisplayMode.BASIC).show_unfilled(False)


def listing(
    words: Words, queries: Sequence[Query], columns: Sequence[Column], *, link: DashboardLink,
    size: tuple[int, int] = (12, 9), by: str = "", joined: bool = False,
) -> table.Panel:  # fmt: skip
    """A table. `joined`: Prometheus' series become rows, those of several queries with the same labels one row.

    `by`: the column that is sorted by, the largest first; `size`: width and height.
    """
    panel = dressed(table.Panel(), words, queries, "string", link, PLAIN)
    panel.span(size[0]).height(size[1])
    if joined:
        value = "Value #{}" if len(queries) > 1 else "Value"
        names = {value.format(one.value_of) if one.value_of else one.name: one.name for one in columns}
        options = {
            "excludeByName": {"Time": True},
            "renameByName": names,
            "indexByName": {name: place for place, name in enumerate(names)},
        }
        panel.with_transformation(DataTransformerConfig("merge", options={}))
        panel.with_transformation(DataTransformerConfig("organize", options=options))
    if by:
        sort = {"sort": [{"field": by, "desc": True}]}
        panel.with_transformation(DataTransformerConfig("sortBy", options=sort))
    for column in columns:
        panel.override_by_name(column.name, _column(column))
    return panel


def added_up(panel: table.Panel, name: str) -> table.Panel:
    """The table with one more column: the sum of another from the top to each row."""
    total = {"field": name, "reducer": "sum"}
    told = {"mode": "cumulativeFunctions", "alias": f"{name} added up", "cumulative": total}
    panel.with_transformation(DataTransformerConfig("calculateField", options=told))
    return panel.override_by_name(f"{name} added up", _column(Column("", SHARE, decimals=1)))


def _column(column: Column) -> list[DynamicConfigValue]:
    told = [DynamicConfigValue("unit", column.unit)]
    if column.decimals is not None:
        told.append(DynamicConfigValue("decimals", column.decimals))
    if column.steps is not None:
        told += [
            DynamicConfigValue("thresholds", _thresholds(column.steps).build()),
            DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
        ]
    if column.bar:
        told += [
            DynamicConfigValue(
                "custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
            ),
            DynamicConfigValue("color", {"mode": "fixed", "fixedColor": NEUTRAL}),
            DynamicConfigValue("min", 0),
        ]
    if column.hidden:
        told.append(DynamicConfigValue("custom.hidden", True))
    if column.link is not None:
        told.append(DynamicConfigValue("links", [column.link.build()]))
    return told


def dressed(
    panel: P, words: Words, queries: Sequence[Query], unit: str, link: DashboardLink, steps: Steps
) -> P:
    """A panel with what each has."""
    panel.title(words.title).description(words.text).no_value(words.none)
    panel.unit(unit).thresholds(_thresholds(steps)).links([link])
    for query in queries:
        panel.with_target(query)
    return panel


def _thresholds(steps: Steps) -> ThresholdsConfig:
    made = [Threshold(value=value, color=color) for value, color in steps]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(made)
