"""*Component owner*: what one component costs, against its budget and its own past, and where it costs most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ett_dashboards import limits, links, variables
from ett_dashboards.board import Board, Section, alerts, incidents
from ett_dashboards.panels import (
    COUNT,
    GPU_HOURS,
    GPUS,
    LIMITED,
    SECONDS,
    SHARE,
    STACKED,
    Column,
    Look,
    Words,
    graph,
    listing,
    number,
    word,
)
from ett_dashboards.queries import (
    CLUSTER,
    CLUSTER_SQL,
    SqlQuery,
    increase,
    now,
    once,
    over_time,
    rows,
)

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models.dashboard import Panel

    from fleet_ett.rules.objectives import Objectives

MINE = 'component="$component"'
HERE = f"{MINE},{CLUSTER}"
MINE_SQL = f"component = ${{component:sqlstring}} AND {CLUSTER_SQL}"
PAGE = links.page(f"/v1/components/${{component:percentencode}}?{links.WINDOW}", "The component, exact")
INCIDENTS = links.page(
    f"/v1/incidents?component=${{component:percentencode}}&{links.WINDOW}", "Its incidents"
)
LOST = once("ett_lost_gpu_seconds_total", "cluster, component, phase, repeated", HERE)


def board(objectives: Objectives) -> Board:
    """The dashboard."""
    return Board(
        links.COMPONENT,
        "Component owner",
        "One component: the GPU time that its own phases lose, and what the incidents cost that it causes.",
        [
            *variables.sources(objectives, postgres=True),
            variables.cluster(),
            variables.component(),
            variables.window(objectives),
        ],
        [
            Section("In the time range", _sums(objectives)),
            Section("Over time", _over_time(objectives)),
            Section("Where", _details()),
        ],
        [incidents(MINE_SQL), alerts()],
    )


def _sums(objectives: Objectives) -> list[Builder[Panel]]:
    period = limits.period(objectives)
    direct = increase(f"cluster_component:ett_lost_gpu_seconds:total{{{HERE}}}")
    induced = increase(f"cluster_component:ett_induced_gpu_seconds:total{{{HERE}}}")
    held = increase(f"cluster:ett_held_gpu_seconds:total{{{CLUSTER}}}")
    ended = increase(once("ett_failures_total", "cluster, component, cause, kind", HERE))
    return [
        word(
            Words("Owner", "Who is told of its alerts (owners in the objectives).", "Nobody"),
            now(f"component:ett_owner:info{{{MINE}}}", "{{owner}}"),
            link=links.page("/v1/components", "All components"),
        ),
        number(
            Words("Direct loss", "GPU-hours that its own phases took.", "None"),
            now(f"sum({direct}) / 3600"), unit=GPU_HOURS, link=PAGE,
        ),
        number(
            Words("Share of GPU time", "Direct loss / all GPU time held.", "No GPU was held"),
            now(f"sum({direct}) / (sum({held}) > 0)"), unit=SHARE, link=PAGE,
        ),
        number(
            Words(
                f"Budget left ({period})",
                f"Of what it may lose over {period}: what is left, in the cluster where it is worst off.",
                "It has no budget",
            ),
            now(f"min(cluster_component:ett_budget_left:{period}{{{HERE}}})"),
            unit=SHARE, link=PAGE, steps=limits.budget_left(),
        ),
        number(
            Words("Induced loss", "GPU-hours that incidents cost whose cause is the component's.", "None"),
            now(f"sum({induced}) / 3600"), unit=GPU_HOURS, link=INCIDENTS,
        ),
        number(
            Words("Attempts ended", "How many attempts it ended before their time.", "None"),
            now(f"sum({ended})"), unit=COUNT, decimals=0, link=INCIDENTS,
        ),
    ]  # fmt: skip


def _over_time(objectives: Objectives) -> list[Builder[Panel]]:
    recent = limits.recent(objectives)
    return [
        graph(
            Words(
                "Lost share",
                "Each point: direct loss / GPU time held over the ${window} before; dashed: the budget.",
                "No GPU was held",
            ),
            [
                over_time(f"cluster_component:ett_lost_ratio:increase${{window}}{{{HERE}}}", "{{cluster}}"),
                over_time(f"cluster_component:ett_budget:ratio{{{HERE}}}", "budget on {{cluster}}", ref="B"),
            ],
            unit=SHARE, link=PAGE, look=Look(dashed="/^budget/"),
        ),
        graph(
            Words(
                "Induced share",
                "Each point: what incidents cost that it caused / GPU time held, over the ${window} before.",
                "No GPU was held",
            ),
            [over_time(f"cluster_component:ett_induced_ratio:increase${{window}}{{{HERE}}}", "{{cluster}}")],
            unit=SHARE, link=INCIDENTS,
        ),
        graph(
            Words("GPUs in its phases", "How many GPUs were in each of its phases, settled time."),
            [over_time(f"sum by (phase) (rate(({LOST})[20m:5m])) > 0", "{{phase}}")],
            unit=GPUS, look=STACKED,
            link=links.page(
                f"/v1/fleet/lost-time?by=phase&component=${{component:percentencode}}&{links.WINDOW}", "By phase, exact"
            ),
        ),
        graph(
            Words(
                f"Against its past ({recent})",
                "Observed / expected: 1 is as always; a regression is reported from the red line on.",
                "Too few starts or restarts to compare",
            ),
            [
                over_time(
                    f"cluster_component:ett_observed:regression{{{HERE}}}"
                    f" / (cluster_component:ett_expected:regression{{{HERE}}} > 0) > 0",
                    "{{measure}} on {{cluster}}",
                )
            ],
            unit=COUNT, link=PAGE, steps=limits.excess(objectives), look=LIMITED,
        ),
    ]  # fmt: skip


def _details() -> list[Builder[Panel]]:
    caused = once("ett_induced_gpu_seconds_total", "cluster, component, cause", HERE)
    return [
        listing(
            Words("Jobs that it cost most", "GPU-hours in its phases, in whole hours of the time range."),
            [
                SqlQuery(f"""
                    SELECT job, cluster, team, sum(gpu_s) / 3600 AS lost, sum(wall_s) AS wall
                    FROM report.ledger
                    WHERE hour_ns >= $__unixEpochNanoFrom() - 3600000000000 AND hour_ns < $__unixEpochNanoTo()
                        AND {MINE_SQL} AND heading <> 'productive'
                    GROUP BY 1, 2, 3 ORDER BY lost DESC LIMIT 20""")
            ],
            [
                Column("job", link=links.to_job()),
                Column("lost", GPU_HOURS, bar=True, decimals=1),
                Column("wall", SECONDS, decimals=0),
            ],
            link=links.page(
                f"/v1/fleet/lost-time?by=job&component=${{component:percentencode}}&{links.WINDOW}", "By job, exact"
            ),
        ),
        listing(
            Words("Causes", "Why it ended attempts, and what that cost."),
            [rows(f"sum by (cause) ({increase(caused)}) / 3600 > 0")],
            [Column("cause"), Column("induced", GPU_HOURS, "A", bar=True, decimals=1)],
            link=INCIDENTS, joined=True, by="induced",
        ),
        listing(
            Words("Its dearest incidents", "Attempts that it ended in the time range.", "It ended no attempt"),
            [
                SqlQuery(f"""
                    SELECT at, job, cause, status, node, gpu_s / 3600 AS cost, detection_s AS detection
                    FROM report.incidents WHERE $__unixEpochNanoFilter(at_ns) AND {MINE_SQL}
                    ORDER BY gpu_s DESC LIMIT 50""")
            ],
            [
                Column("at", "dateTimeAsIso"),
                Column("job", link=links.to_job()),
                Column("cost", GPU_HOURS, bar=True, decimals=1),
                Column("detection", SECONDS, decimals=0),
            ],
            link=INCIDENTS,
        ),
        listing(
            Words(
                "Nodes that it fails on",
                "Nodes on which it ended attempts: one that leads the list by far is better replaced.",
                "It ended no attempt on a known node",
            ),
            [
                SqlQuery(f"""
                    SELECT node, count(*) AS incidents, sum(gpu_s) / 3600 AS cost, max(at) AS last
                    FROM report.incidents
                    WHERE $__unixEpochNanoFilter(at_ns) AND {MINE_SQL} AND node IS NOT NULL
                    GROUP BY 1 ORDER BY 2 DESC, 3 DESC LIMIT 20""")
            ],
            [
                Column("incidents", COUNT),
                Column("cost", GPU_HOURS, bar=True, decimals=1),
                Column("last", "dateTimeAsIso"),
            ],
            link=links.page(f"/v1/nodes?component=${{component:percentencode}}&{links.WINDOW}", "Nodes"),
        ),
    ]  # fmt: skip
