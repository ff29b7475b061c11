"""*Restarts and repeated work*: how often attempts end, how long coming back takes, and what is done twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ett_dashboards import limits, links, variables
from ett_dashboards.board import Board, Section, alerts, incidents
from ett_dashboards.panels import (
    COLUMNS,
    COUNT,
    GPU_HOURS,
    GPUS,
    LIMITED,
    SECONDS,
    SHARE,
    STACKED,
    Column,
    Words,
    graph,
    listing,
    number,
)
from ett_dashboards.queries import (
    CLUSTER,
    CLUSTER_SQL,
    SqlQuery,
    increase,
    now,
    once,
    over_time,
    ratio,
    rows,
)

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders.prometheus import Dataquery
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models.dashboard import Panel

    from fleet_ett.rules.objectives import Objectives

HELD = increase(f"cluster:ett_held_gpu_seconds:total{{{CLUSTER}}}")
HERE = f"{{{CLUSTER}}}"
FAILURES = "cluster_component:ett_failures:total"
INCIDENTS = links.page(f"/v1/incidents?{links.WINDOW}", "Incidents")
REPEATED = links.page(f"/v1/fleet/repeated-work?{links.WINDOW}", "Repeated work, exact")
STARTS, RECOVERIES, DETECTIONS = (
    f"ett_{name}_seconds_bucket" for name in ("time_to_start", "time_to_recover", "detection")
)


def board(objectives: Objectives) -> Board:
    """The dashboard."""
    return Board(
        links.RESTARTS,
        "Restarts and repeated work",
        "How often attempts end before their time, how long it takes until the job trains on new data again, and what "
        "is done a second time because of it.",
        [*variables.sources(objectives, postgres=True), variables.cluster()],
        [
            Section("In the time range", _sums(objectives)),
            Section("Over time", _over_time(objectives)),
            Section("What to look at", _details(objectives)),
        ],
        [incidents(), alerts()],
    )


def quantile(share: float, bucket: str, span: str = "$__range") -> str:
    """How long the quicker `share` of starts or recoveries took at most."""
    return f"histogram_quantile({share}, sum by (le) ({increase(once(bucket, 'cluster, le'), span)}))"


def _sums(objectives: Objectives) -> list[Builder[Panel]]:
    replayed = f"sum({increase(f'cluster_component:ett_replay_gpu_seconds:total{{{CLUSTER}}}')})"
    restarts = f"sum({increase(f'cluster_component:ett_restart_gpu_seconds:total{{{CLUSTER}}}')})"
    node_days = f"sum({HELD}) / {objectives.gpus_per_node * 86_400}"
    return [
        number(
            Words(
                "Failures per 1,000 node-days",
                "Ends of attempts that the infrastructure caused. Published clusters: 2.3 to 6.5.",
                "No GPU was held",
            ),
            now(ratio(f"1000 * sum({increase(f'{FAILURES}{{{CLUSTER}}}')})", node_days)),
            unit=COUNT, link=INCIDENTS,
        ),
        number(
            Words("Time to start", "Median: allocation to a job's first step.", "No job started"),
            now(quantile(0.5, STARTS)),
            unit=SECONDS, link=links.page(f"/v1/fleet/lost-time?by=phase&{links.WINDOW}", "By phase, exact"),
        ),
        number(
            Words("Time to recover", "Median: failure to the first step of the next attempt.", "Nothing failed"),
            now(quantile(0.5, RECOVERIES)),
            unit=SECONDS, link=INCIDENTS,
        ),
        number(
            Words("Steps trained again", "Steps that an earlier attempt had trained, but no checkpoint held.", "None"),
            now(f"sum({increase(once('ett_replayed_steps_total', 'cluster, team'))})"),
            unit=COUNT, decimals=0, link=REPEATED,
        ),
        number(
            Words("Replay", "GPU-hours in which steps were trained again, or cut off by the end.", "None"),
            now(f"{replayed} / 3600"),
            unit=GPU_HOURS, link=REPEATED,
        ),
        number(
            Words(
                "Start-up again",
                "Share of all GPU time that went into starting what had been started before: what caches, standby "
                "nodes and fewer failures would save.",
                "No GPU was held",
            ),
            now(ratio(restarts, f"sum({HELD})")),
            unit=SHARE, link=REPEATED,
        ),
    ]  # fmt: skip


def _durations(bucket: str) -> list[Dataquery]:
    return [
        over_time(quantile(0.5, bucket, "6h"), "half of them at most"),
        over_time(quantile(0.9, bucket, "6h"), "nine of ten at most", ref="B"),
    ]


def _over_time(objectives: Objectives) -> list[Builder[Panel]]:
    recent = limits.recent(objectives)
    failures = once("ett_failures_total", "cluster, component, cause, kind")
    return [
        graph(
            Words("Ends of attempts by kind", "An hour each: infra, user, planned or unknown. Completion is no end."),
            [over_time(f"sum by (kind) ({increase(failures, '1h')}) > 0", "{{kind}}")],
            unit=COUNT, link=INCIDENTS, look=COLUMNS,
        ).interval("1h"),
        graph(
            Words("GPUs that start or repeat", "GPUs in a first start-up, in a repeated one, and in replayed steps."),
            [
                over_time(f"sum(rate(cluster_component:ett_{name}_gpu_seconds:total{HERE}[15m]))", legend, ref=ref)
                for name, legend, ref in (
                    ("first_start", "first start", "A"), ("restart", "started again", "B"), ("replay", "replay", "C"),
                )
            ],
            unit=GPUS, link=REPEATED, look=STACKED,
        ),
        graph(
            Words("Time to start", "Allocation to the first step of new data, of jobs that began in the 6h before."),
            _durations(STARTS),
            unit=SECONDS, link=links.page(f"/v1/fleet/lost-time?by=phase&{links.WINDOW}", "By phase, exact"), width=8,
        ),
        graph(
            Words("Time to recover", "Failure to the first step of the next attempt, in the 6h before."),
            _durations(RECOVERIES),
            unit=SECONDS, link=INCIDENTS, width=8,
        ),
        graph(
            Words(
                "Detection",
                "Last progress to the end of an attempt that failed, in the 6h before: how long nobody noticed.",
            ),
            _durations(DETECTIONS),
            unit=SECONDS, link=INCIDENTS, width=8,
        ),
        graph(
            Words(
                f"Against the past ({recent})",
                "Observed / expected: what a component cost in the window, over what its past and the present mix of "
                "teams let expect. 1 is as always; a regression is reported from the red line on.",
                "Too few starts or restarts to compare",
            ),
            [
                over_time(
                    f"cluster_component:ett_observed:regression{{{CLUSTER}}}"
                    f" / (cluster_component:ett_expected:regression{{{CLUSTER}}} > 0) > 0",
                    "{{measure}} of {{component}} on {{cluster}}",
                )
            ],
            unit=COUNT, link=links.page("/v1/components", "Components"), steps=limits.excess(objectives),
            look=LIMITED, width=24,
        ),
    ]  # fmt: skip


def _details(objectives: Objectives) -> list[Builder[Panel]]:
    return [
        listing(
            Words(
                "Dearest incidents",
                "What ended attempts in the time range and cost most: silence, gap, restart and replay together.",
                "No attempt ended before its time",
            ),
            [
                SqlQuery(f"""
                    SELECT at, job, cluster, cause, component, node, gpu_s / 3600 AS cost, detection_s AS detection,
                        gap_s AS gap, restart_s AS restart, replay_s AS replay, replayed_steps AS steps
                    FROM report.incidents WHERE $__unixEpochNanoFilter(at_ns) AND {CLUSTER_SQL}
                    ORDER BY gpu_s DESC LIMIT 50""")
            ],
            [
                Column("at", "dateTimeAsIso"),
                Column("job", link=links.to_job()),
                Column("component", link=links.to_component()),
                Column("cost", GPU_HOURS, bar=True, decimals=1),
                *(Column(name, SECONDS, decimals=0) for name in ("detection", "gap", "restart", "replay")),
                Column("steps", COUNT),
            ],
            link=INCIDENTS, size=(24, 9),
        ),
        listing(
            Words(
                "Work done more than once",
                "Work with a key (a compiled graph, say) that began in the time range and had been done before, in "
                "any job: GPU-hours that a shared cache would have saved.",
                "No work was done twice",
            ),
            [
                SqlQuery(f"""
                    SELECT phase, work_key AS key, count(*) AS times, count(DISTINCT job) AS jobs,
                        (sum(gpu_s) - max(gpu_s)) / 3600 AS again
                    FROM report.work WHERE $__unixEpochNanoFilter(start_ns) AND {CLUSTER_SQL}
                    GROUP BY phase, work_key HAVING count(*) > 1 ORDER BY again DESC LIMIT 30""")
            ],
            [Column("again", GPU_HOURS, bar=True, decimals=1), Column("times", COUNT), Column("jobs", COUNT)],
            link=REPEATED,
        ),
        listing(
            Words(
                "Observed and expected",
                "The figures behind the graph of regressions: GPU-seconds, for failures their number.",
                "Too few starts or restarts to compare",
            ),
            [
                rows(f"cluster_component:ett_observed:regression{{{CLUSTER}}} > 0", ref="A"),
                rows(f"cluster_component:ett_expected:regression{{{CLUSTER}}} > 0", ref="B"),
                rows(
                    f"cluster_component:ett_observed:regression{{{CLUSTER}}}"
                    f" / (cluster_component:ett_expected:regression{{{CLUSTER}}} > 0) > 0",
                    ref="C",
                ),
            ],
            [
                Column("measure"),
                Column("component", link=links.to_component()),
                Column("cluster"),
                Column("observed", COUNT, "A"),
                Column("expected", COUNT, "B"),
                Column("times", COUNT, "C", steps=limits.excess(objectives), decimals=2),
            ],
            link=links.page("/v1/components", "Components"), joined=True, by="times",
        ),
    ]  # fmt: skip
