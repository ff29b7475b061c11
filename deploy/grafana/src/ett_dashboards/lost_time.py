"""*Where time goes*: everything that was not productive, by whose phase it was and by who caused it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ett_dashboards import limits, links, variables
from ett_dashboards.board import Board, Section, alerts, incidents
from ett_dashboards.panels import (
    COUNT,
    GPU_HOURS,
    GPUS,
    SHARE,
    STACKED,
    Column,
    Words,
    added_up,
    bars,
    graph,
    listing,
    number,
)
from ett_dashboards.queries import CLUSTER, increase, now, once, over_time, ratio, rows

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models.dashboard import Panel

    from fleet_ett.rules.objectives import Objectives

OWNER = "on (component) group_left (owner) component:ett_owner:info"
DIRECT = increase(f"cluster_component:ett_lost_gpu_seconds:total{{{CLUSTER}}}")
INDUCED = increase(f"cluster_component:ett_induced_gpu_seconds:total{{{CLUSTER}}}")
HELD = increase(f"cluster:ett_held_gpu_seconds:total{{{CLUSTER}}}")
PRODUCTIVE = increase(f"cluster:ett_productive_gpu_seconds:total{{{CLUSTER}}}")
LOST = once("ett_lost_gpu_seconds_total", "cluster, component, phase, repeated")
CAUSED = once("ett_induced_gpu_seconds_total", "cluster, component, cause")
BY_OWNER = links.page(f"/v1/fleet/lost-time?by=owner&{links.WINDOW}", "By owner, exact")
BY_COMPONENT = links.page(f"/v1/fleet/lost-time?by=component&{links.WINDOW}", "By component, exact")


def board(objectives: Objectives) -> Board:
    """The dashboard."""
    return Board(
        links.LOST,
        "Where time goes",
        "The GPU time that did not train on new data: direct, by whose phase it was, and induced, by who made "
        "attempts end. The two are two views of the same time and do not add up.",
        [*variables.sources(objectives, postgres=True), variables.cluster()],
        [
            Section("All of it", _sums(objectives)),
            Section("Owners, the largest first", _owners(objectives)),
            Section("Phases and causes", _details()),
        ],
        [incidents(), alerts()],
    )


def _sums(objectives: Objectives) -> list[Builder[Panel]]:
    repeated = 'repeated="true"'
    unknown = once("ett_gpu_seconds_total", "cluster, team, heading", f'heading="unknown",{CLUSTER}')
    again = once("ett_lost_gpu_seconds_total", "cluster, component, phase, repeated", f"{repeated},{CLUSTER}")
    return [
        number(
            Words("Held", "GPU-hours that jobs held in the time range.", "None"),
            now(f"sum({HELD}) / 3600"),
            unit=GPU_HOURS, link=links.page(f"/v1/fleet/ett?{links.WINDOW}", "ETT, exact"),
        ),
        number(
            Words("Lost", "GPU-hours of these that did not train on new data.", "None"),
            now(f"(sum({HELD}) - sum({PRODUCTIVE})) / 3600"),
            unit=GPU_HOURS, link=BY_COMPONENT,
        ),
        number(
            Words("Lost share", "1 - ETT%: red from the share on that the objective allows.", "No GPU was held"),
            now(f"1 - {ratio(f'sum({PRODUCTIVE})', f'sum({HELD})')}"),
            unit=SHARE, link=BY_COMPONENT, steps=limits.at_most(round(1 - limits.default(objectives).ett, 6)),
        ),
        number(
            Words(
                "Induced by incidents",
                "GPU-hours that ended attempts cost: silence before the end, the gap, the restart, the replay.",
                "None",
            ),
            now(f"sum({INDUCED}) / 3600"),
            unit=GPU_HOURS, link=links.page(f"/v1/incidents?{links.WINDOW}", "Incidents"),
        ),
        number(
            Words("Done again", "Share of what was lost that had been done before: start-up, replay.", "Nothing lost"),
            now(ratio(f"sum({increase(again)})", f"sum({DIRECT})")),
            unit=SHARE, link=links.page(f"/v1/fleet/repeated-work?{links.WINDOW}", "Repeated work"),
        ),
        number(
            Words(
                "Unknown",
                "Share of GPU time that nothing was reported for. Above the limit the other figures are doubtful.",
                "No GPU was held",
            ),
            now(ratio(f"sum({increase(unknown)})", f"sum({HELD})")),
            unit=SHARE, link=links.page("/v1/nodes", "Nodes"), steps=limits.at_most(objectives.telemetry.unknown),
        ),
    ]  # fmt: skip


def _left(period: str) -> str:
    return f"cluster_component:ett_budget_left:{period}{{{CLUSTER}}}"


def _owners(objectives: Objectives) -> list[Builder[Panel]]:
    period = limits.period(objectives)
    return [
        bars(
            Words(
                "Direct loss by owner",
                "GPU-hours in phases that the owner answers for: its own start-up, saves, stalls, replay.",
            ),
            now(f"sort_desc(sum by (owner) ({DIRECT} * {OWNER}) / 3600 > 0)", "{{owner}}"),
            unit=GPU_HOURS, link=BY_OWNER,
        ),
        bars(
            Words(
                "Induced loss by owner",
                "GPU-hours that incidents cost whose cause is the owner's, whoever's phases they fell into.",
            ),
            now(f"sort_desc(sum by (owner) ({INDUCED} * {OWNER}) / 3600 > 0)", "{{owner}}"),
            unit=GPU_HOURS, link=BY_OWNER,
        ),
        added_up(
            listing(
                Words(
                    "Components",
                    "Direct and induced loss in the time range. Share: of all that was lost, directly; added up from "
                    f"the top it is the Pareto line. Budget: what is left of the component's over {period}, in the "
                    "cluster where it is worst off.",
                ),
                [
                    rows(f"sum by (component, owner) ({DIRECT} * {OWNER}) / 3600 > 0", ref="A"),
                    rows(
                        f"sum by (component, owner) ({DIRECT} * {OWNER})"
                        f" / scalar(sum({DIRECT})) > 0", ref="B",
                    ),
                    rows(f"sum by (component, owner) ({INDUCED} * {OWNER}) / 3600", ref="C"),
                    rows(
                        f"min by (component, owner) ({_left(period)} * {OWNER})",
                        ref="D",
                    ),
                ],
                [
                    Column("component", link=links.to_component()),
                    Column("owner"),
                    Column("direct", GPU_HOURS, "A", bar=True, decimals=1),
                    Column("share", SHARE, "B", decimals=1),
                    Column("induced", GPU_HOURS, "C", bar=True, decimals=1),
                    Column("budget left", SHARE, "D", steps=limits.budget_left(), decimals=0),
                ],
                link=BY_COMPONENT, size=(24, 11), joined=True, by="direct",
            ),
            "share",
        ),
        graph(
            Words("GPUs lost, by component", "How many GPUs did something else than train on new data, and for whom."),
            [
                over_time(
                    f"sum by (component) (rate(cluster_component:ett_lost_gpu_seconds:total{{{CLUSTER}}}[15m])) > 0",
                    "{{component}}",
                )
            ],
            unit=GPUS, link=BY_COMPONENT, look=STACKED,
        ).data_links([links.of_series()]),
        bars(
            Words(
                f"Budgets left ({period})",
                "By component and cluster: of the GPU time that the component may lose, what is left.",
                "No component has a budget, or no history yet",
            ),
            now(f"sort({_left(period)})", "{{component}} on {{cluster}}"),
            unit=SHARE, link=links.page("/v1/components", "Components"), steps=limits.budget_left(),
        ).min(-1).max(1).data_links([links.of_series()]),
    ]  # fmt: skip


def _details() -> list[Builder[Panel]]:
    again = 'ett_lost_gpu_seconds_total{repeated="true",cluster=~"$cluster"}'
    return [
        listing(
            Words(
                "Phases",
                "What the time was spent on. Repeated: the part that an earlier attempt of the same job had done.",
            ),
            [
                rows(f"topk(30, sum by (component, phase) ({increase(LOST)}) / 3600 > 0)", ref="A"),
                rows(
                    f"sum by (component, phase) "
                    f"({increase(f'max by (cluster, component, phase) ({again})')}) / 3600 > 0",
                    ref="B",
                ),
            ],
            [
                Column("phase"),
                Column("component", link=links.to_component()),
                Column("lost", GPU_HOURS, "A", bar=True, decimals=1),
                Column("repeated", GPU_HOURS, "B", bar=True, decimals=1),
            ],
            link=links.page(f"/v1/fleet/lost-time?by=phase,repeated&{links.WINDOW}", "By phase, exact"),
            size=(12, 12), joined=True, by="lost",
        ),
        listing(
            Words("Causes", "Why attempts ended, and what that cost until the job trained on new data again."),
            [
                rows(f"topk(30, sum by (component, cause) ({increase(CAUSED)}) / 3600 > 0)", ref="A"),
                rows(
                    "sum by (component, cause) "
                    f"({increase(once('ett_failures_total', 'cluster, component, cause, kind'))}) > 0",
                    ref="B",
                ),
            ],
            [
                Column("cause"),
                Column("component", link=links.to_component()),
                Column("induced", GPU_HOURS, "A", bar=True, decimals=1),
                Column("incidents", COUNT, "B", decimals=0),
            ],
            link=links.page(f"/v1/fleet/lost-time?by=cause&{links.WINDOW}", "By cause, exact"),
            size=(12, 12), joined=True, by="induced",
        ),
    ]  # fmt: skip
