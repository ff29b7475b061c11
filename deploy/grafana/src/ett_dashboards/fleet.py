"""*Fleet ETT%*: how well the fleet trains, against what was promised, and who is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ett_dashboards import limits, links, variables
from ett_dashboards.board import Board, Section, alerts, incidents
from ett_dashboards.panels import (
    COUNT,
    GPU_HOURS,
    GPUS,
    LIMITED,
    SHARE,
    STACKED,
    Column,
    Look,
    Words,
    graph,
    listing,
    number,
)
from ett_dashboards.queries import (
    CLUSTER,
    TEAM,
    TEAM_SQL,
    SqlQuery,
    now,
    once,
    over_time,
    ratio,
    rows,
)

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models.dashboard import Panel

    from fleet_ett.rules.objectives import Objectives

PRODUCTIVE = f"cluster_team:ett_productive_gpu_seconds:increase${{window}}{{{TEAM}}}"
HELD = f"cluster_team:ett_held_gpu_seconds:increase${{window}}{{{TEAM}}}"
FIRING = f'ALERTS{{alertname=~"Ett.*",alertstate="firing",{CLUSTER}}}'
ETT_PAGE = links.page(f"/v1/fleet/ett?by=cluster&{links.WINDOW}", "ETT by cluster, exact")


def board(objectives: Objectives) -> Board:
    """The dashboard."""
    return Board(
        links.FLEET,
        "Fleet ETT%",
        "The share of the GPU time that the fleet holds in which it trains on new data, against its objectives.",
        [
            *variables.sources(objectives, postgres=True),
            variables.cluster(),
            variables.team(),
            variables.window(objectives),
        ],
        [
            Section("Now", _now(objectives)),
            Section("Over time", _over_time(objectives)),
            Section("Who", _who(objectives)),
        ],
        [incidents(TEAM_SQL), alerts()],
    )


def _now(objectives: Objectives) -> list[Builder[Panel]]:
    period = limits.period(objectives)
    return [
        number(
            Words(
                "ETT%",
                "Of all GPU time held over the last ${window}: the share that trained on new data. A ratio of sums, "
                "so that a large job counts for as much as it holds. Green from the objective on; yellow and red "
                "below the levels at which people are paged.",
                "No GPU was held",
            ),
            now(ratio(f"sum({PRODUCTIVE})", f"sum({HELD})")),
            unit=SHARE, link=ETT_PAGE, steps=limits.ett(objectives), width=3,
        ),
        number(
            Words("Objective", "The ETT% that was promised for the chosen clusters: the highest of theirs.", "None"),
            now(f"max(cluster:ett_objective:ratio{{{CLUSTER}}})"),
            unit=SHARE, link=ETT_PAGE, width=3,
        ),
        number(
            Words(
                f"Budget left ({period})",
                f"Of the time that may be lost over {period} by the objective of the cluster that is worst off: what "
                "is left. Below 0 the objective is missed.",
                "No history yet",
            ),
            now(f"min(cluster:ett_budget_left:{period}{{{CLUSTER}}})"),
            unit=SHARE, link=ETT_PAGE, steps=limits.budget_left(), width=3,
        ),
        number(
            Words("Lost", "GPU-hours over the last ${window} that were held and did not train on new data.", "None"),
            now(f"(sum({HELD}) - sum({PRODUCTIVE})) / 3600"),
            unit=GPU_HOURS, link=links.page(f"/v1/fleet/lost-time?{links.WINDOW}", "Lost time, exact"), width=3,
        ),
        number(
            Words("Held now", "GPUs that jobs hold at this moment.", "None"),
            now(f"sum({once('ett_gpus_allocated', 'cluster, team', TEAM)})"),
            unit=GPUS, decimals=0, link=links.page("/v1/jobs", "Jobs"), width=3,
        ),
        number(
            Words("Jobs now", "Jobs that hold hardware at this moment.", "None"),
            now(f"sum({once('ett_jobs_running', 'cluster, team', TEAM)})"),
            unit=COUNT, decimals=0, link=links.page("/v1/jobs", "Jobs"), width=3,
        ),
        number(
            Words(
                "Without progress",
                "GPUs of jobs that make no progress at this moment although their nodes are heard: hangs. Red where "
                "somebody is paged for those of one team.",
                "None",
            ),
            now(f"sum({once('ett_gpus_without_progress', 'cluster, team', TEAM)})"),
            unit=GPUS, decimals=0, link=links.page("/v1/jobs?phase=hang", "Jobs that hung"),
            steps=limits.at_most(objectives.telemetry.stuck_gpus), width=3,
        ),
        number(
            Words("Alerts", "Alerts of fleet-ett that fire at this moment; the table below names them.", "None"),
            now(f"count(max by (alertname, cluster, component, severity) ({FIRING})) or vector(0)"),
            unit=COUNT, decimals=0, link=links.page("/readyz", "Is the service well?"), width=3,
            steps=limits.at_most(1),
        ),
    ]  # fmt: skip


def _over_time(objectives: Objectives) -> list[Builder[Panel]]:
    recent, period = limits.recent(objectives), limits.period(objectives)
    return [
        graph(
            Words(
                "ETT% by cluster",
                "Each point is the ratio over the ${window} before it; the dashed line is the cluster's objective.",
                "No GPU was held",
            ),
            [
                over_time(f"cluster:ett_ratio:increase${{window}}{{{CLUSTER}}}", "{{cluster}}"),
                over_time(f"cluster:ett_objective:ratio{{{CLUSTER}}}", "objective of {{cluster}}", ref="B"),
            ],
            unit=SHARE, link=ETT_PAGE, steps=limits.ett(objectives), look=Look(dashed="/^objective/", most=1),
        ),
        graph(
            Words(
                "ETT% by team",
                "Each point is the ratio over the ${window} before it. Teams with short jobs have less: every job "
                "has to start.",
                "No GPU was held",
            ),
            [over_time(f"cluster_team:ett_ratio:increase${{window}}{{{TEAM}}}", "{{team}} on {{cluster}}")],
            unit=SHARE, link=links.page(f"/v1/fleet/ett?by=team&{links.WINDOW}", "ETT by team, exact"),
            steps=limits.ett(objectives), look=Look(most=1),
        ),
        graph(
            Words(
                f"ETT% with and without the mix of teams ({recent})",
                "A fleet's ETT also falls when a team of short jobs takes a larger part of it, although nobody got "
                "worse. The second line is ETT at the usual mix: alerts look at that one.",
                "No GPU was held",
            ),
            [
                over_time(f"cluster:ett_ratio:increase{recent}{{{CLUSTER}}}", "{{cluster}}"),
                over_time(
                    f"cluster:ett_ratio_at_usual_mix:increase{recent}{{{CLUSTER}}}", "{{cluster}} at its usual mix",
                    ref="B",
                ),
            ],
            unit=SHARE, link=ETT_PAGE, steps=limits.ett(objectives), look=Look(most=1),
        ),
        graph(
            Words(
                "How fast the budget burns",
                "Lost share over the ${window} before / lost share that the objective allows. At 1 the budget lasts "
                "exactly as long as it should; it never exceeds 1 / budget.",
                "No GPU was held",
            ),
            [
                over_time(
                    f"(1 - cluster:ett_ratio:increase${{window}}{{{CLUSTER}}})"
                    f" / (1 - cluster:ett_objective:ratio{{{CLUSTER}}})",
                    "{{cluster}}",
                )
            ],
            unit=COUNT, link=links.page("/v1/fleet/lost-time?by=component", "Who lost it"), steps=limits.burn(),
            look=LIMITED,
        ),
        graph(
            Words(
                "What GPUs do",
                "GPUs held, by what they do: settled time as it is booked, so the newest minutes come later.",
            ),
            [
                over_time(
                    "sum by (heading) ("
                    f"rate(({once('ett_gpu_seconds_total', 'cluster, team, heading', TEAM)})[20m:5m])) > 0",
                    "{{heading}}",
                )
            ],
            unit=GPUS, link=links.page(f"/v1/fleet/lost-time?by=heading&{links.WINDOW}", "By heading, exact"),
            look=STACKED,
        ),
        graph(
            Words(
                f"Budget left ({period})",
                f"Of the time that may be lost over {period}: what is left. Below 0 the objective is missed.",
                "No history yet",
            ),
            [over_time(f"cluster:ett_budget_left:{period}{{{CLUSTER}}}", "{{cluster}}")],
            unit=SHARE, link=ETT_PAGE, steps=limits.budget_left(), look=LIMITED,
        ).min(-1).max(1),
    ]  # fmt: skip


def _who(objectives: Objectives) -> list[Builder[Panel]]:
    by_team = "by (cluster, team)"
    return [
        listing(
            Words("Teams", "Each team's GPU time over the last ${window}.", "No GPU was held"),
            [
                rows(f"sum {by_team} ({HELD}) / 3600", ref="A"),
                rows(f"sum {by_team} ({HELD} - {PRODUCTIVE}) / 3600", ref="B"),
                rows(ratio(f"sum {by_team} ({PRODUCTIVE})", f"sum {by_team} ({HELD})"), ref="C"),
            ],
            [
                Column("cluster"),
                Column("team"),
                Column("held", GPU_HOURS, "A", decimals=1),
                Column("lost", GPU_HOURS, "B", bar=True, decimals=1),
                Column("ETT", SHARE, "C", steps=limits.ett(objectives), decimals=1),
            ],
            link=links.page(f"/v1/fleet/ett?by=team&{links.WINDOW}", "ETT by team, exact"), joined=True, by="lost",
        ),
        listing(
            Words(
                "Alerts that fire",
                "What they mean stands in the runbook of the same name (deploy/runbooks).",
                "None fires",
            ),
            [rows(f"max by (alertname, cluster, component, team, severity, owner) ({FIRING})")],
            [
                Column("severity"),
                Column("alertname"),
                Column("cluster"),
                Column("component", link=links.to_component()),
                Column("owner"),
            ],
            link=links.page("/v1/fleet/lost-time?by=component", "Who lost what"), joined=True,
        ),
        listing(
            Words(
                "Jobs that lost most",
                "By GPU-hours in the dashboard's time range that did not train on new data. A click leads to the job.",
                "No job held a GPU",
            ),
            [
                SqlQuery(f"""
                    SELECT job, cluster, team, sum(gpu_s) / 3600 AS held,
                        sum(gpu_s - productive_gpu_s) / 3600 AS lost,
                        sum(productive_gpu_s) / nullif(sum(gpu_s), 0) AS "ETT"
                    FROM report.job_hours
                    WHERE hour_ns >= $__unixEpochNanoFrom() - 3600000000000 AND hour_ns < $__unixEpochNanoTo()
                        AND {TEAM_SQL}
                    GROUP BY job, cluster, team ORDER BY lost DESC LIMIT 20""")
            ],
            [
                Column("job", link=links.to_job()),
                Column("held", GPU_HOURS, decimals=1),
                Column("lost", GPU_HOURS, bar=True, decimals=1),
                Column("ETT", SHARE, steps=limits.ett(objectives), decimals=1),
            ],
            link=links.page(f"/v1/fleet/ett?by=job&{links.WINDOW}", "ETT by job, exact"), size=(24, 9),
        ),
    ]  # fmt: skip
