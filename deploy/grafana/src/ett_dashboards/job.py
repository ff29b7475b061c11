"""*Job*: one job's whole life, from the views of the books."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import statetimeline
from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import ValueMap, ValueMappingResult

from ett_dashboards import limits, links, variables
from ett_dashboards.board import Board, Section, incidents
from ett_dashboards.panels import (
    COUNT,
    GPU_HOURS,
    GPUS,
    PLAIN,
    SECONDS,
    SHARE,
    Column,
    Look,
    Words,
    bars,
    dressed,
    graph,
    listing,
    number,
)
from ett_dashboards.queries import SqlQuery
from fleet_ett.core.taxonomy import HEADINGS

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models.dashboard import Panel

    from ett_dashboards.panels import Steps
    from fleet_ett.rules.objectives import Objectives

JOB = "job = ${job:sqlstring}"
PAGE = "/v1/jobs/${job:percentencode}"
DETAIL = links.page(PAGE, "The job")
LEDGER = links.page(f"{PAGE}/ledger?by=heading&{links.WINDOW}", "Its ledger, exact")
NONE = "Not in the books yet"
# Nobody must take the color of lost time for that of trained time.
COLORS = {
    "productive": "green", "replay": "red", "aborted_step": "red", "stall": "dark-red", "unknown": "gray",
    "startup": "blue", "compile": "light-blue", "checkpoint": "orange", "data_wait": "yellow", "evaluation": "purple",
    "publish": "light-purple", "shutdown": "semi-dark-blue", "gap": "text",
}  # fmt: skip


def board(objectives: Objectives) -> Board:
    """The dashboard."""
    return Board(
        links.JOB,
        "Job",
        "Where the time of one job went, attempt by attempt. Figures at the top are of its whole life.",
        [*variables.sources(objectives, postgres=True), variables.cluster(), variables.job()],
        [
            Section("Its whole life", [*_sums(objectives), _who()]),
            Section("In the time range", _over_time()),
            Section("Attempts and incidents", _details(objectives)),
        ],
        [incidents(JOB)],
    )


def _figure(
    title: str, text: str, column: str, unit: str, *, steps: Steps = PLAIN, none: str = NONE
) -> Builder[Panel]:
    query = SqlQuery(f"SELECT {column} AS value FROM report.jobs WHERE {JOB}")
    return number(
        Words(title, text, none),
        query,
        unit=unit,
        link=DETAIL,
        steps=steps,
        width=3,
        decimals=0 if unit == COUNT else None,
    )


def _sums(objectives: Objectives) -> list[Builder[Panel]]:
    return [
        _figure(
            "ETT%", "Share of its wall time, from the first hardware to the last, in which it trained on new data.",
            "ett", SHARE, steps=limits.ett(objectives),
        ),
        _figure(
            "ETT% expected",
            "What its failures, recoveries and saves alone should leave. Far above ETT%: look for other losses.",
            "expected_ett", SHARE, none="No failures or saves",
        ),
        _figure("Held", "GPU-hours that it held.", "gpu_s / 3600", GPU_HOURS),
        _figure("Lost", "GPU-hours of these that trained on no new data.", "gpu_s * (1 - ett_gpu) / 3600", GPU_HOURS),
        _figure("Attempts", "How often it was launched.", "attempts", COUNT),
        _figure(
            "Failures", "Attempts that ended before their time, whoever's fault.",
            "failures_infra + failures_user + failures_planned + failures_unknown", COUNT,
        ),
        _figure(
            "Time to start", "Allocation to the first step of its first attempt.", "time_to_start_s", SECONDS,
            none="No step yet",
        ),
        _figure(
            "Steps trained again", "Steps that an earlier attempt had trained, but no checkpoint held.",
            "steps_replayed", COUNT, none="Unit of steps unknown",
        ),
    ]  # fmt: skip


def _who() -> Builder[Panel]:
    return listing(
        Words(
            "This job",
            "Who it is. A click on its start sets the time range to its whole life, which the rest of the dashboard "
            "then shows. Error: why its books are older than its events.",
            NONE,
        ),
        [
            SqlQuery(f"""
                SELECT start_at AS start, end_at AS "end", live, cluster, team, model, framework, name, gpus, error,
                    (start_ns / 1000000)::text AS from_ms,
                    (coalesce(end_ns / 1000000, extract(epoch FROM now())::bigint * 1000) + 1)::text AS to_ms
                FROM report.jobs WHERE {JOB}""")
        ],
        [
            Column("start", "dateTimeAsIso", link=links.to_all_of_it()),
            Column("end", "dateTimeAsIso"),
            Column("gpus", GPUS, decimals=0),
            Column("from_ms", hidden=True),
            Column("to_ms", hidden=True),
        ],
        link=DETAIL,
        size=(24, 4),
    )


def _over_time() -> list[Builder[Panel]]:
    return [
        _timeline(),
        graph(
            Words(
                "Each hour of its attempts",
                "What the wall time of each hour was spent on; an hour with gaps of the job in it is lower.",
            ),
            [
                SqlQuery(
                    f"""
                    SELECT hour_at AS time, heading AS metric, sum(wall_s) AS value
                    FROM report.ledger
                    WHERE {JOB} AND hour_ns >= $__unixEpochNanoFrom() - 3600000000000
                        AND hour_ns < $__unixEpochNanoTo()
                    GROUP BY 1, 2 ORDER BY 1, 2""",
                    shape="time_series",
                )
            ],
            unit=SECONDS, link=LEDGER, look=Look(stacked=True, columns=True, colors=COLORS),
        ),
        bars(
            Words("By phase", "GPU-hours in the time range, what trained on new data left out."),
            SqlQuery(f"""
                SELECT phase, sum(gpu_s) / 3600 AS lost FROM report.ledger
                WHERE {JOB} AND hour_ns >= $__unixEpochNanoFrom() - 3600000000000 AND hour_ns < $__unixEpochNanoTo()
                    AND heading <> 'productive'
                GROUP BY 1 HAVING sum(gpu_s) > 0 ORDER BY 2 DESC LIMIT 15"""),
            unit=GPU_HOURS, link=links.page(f"{PAGE}/ledger?by=phase&{links.WINDOW}", "By phase, exact"), values=True,
        ),
    ]  # fmt: skip


def _timeline() -> Builder[Panel]:
    """What the job did from when to when, and whose phase it was; segments are cut to the time range."""
    query = SqlQuery(f"""
        SELECT * FROM (
            SELECT greatest(start_at, $__timeFrom()::timestamptz) AS time, heading AS "doing", component AS "owner"
            FROM report.segments
            WHERE {JOB} AND end_ns > $__unixEpochNanoFrom() AND start_ns < $__unixEpochNanoTo()
            UNION ALL
            SELECT least(max(end_at), $__timeTo()::timestamptz), NULL, NULL FROM report.segments
            WHERE {JOB} AND end_ns > $__unixEpochNanoFrom() AND start_ns < $__unixEpochNanoTo()
        ) segments WHERE time IS NOT NULL ORDER BY time LIMIT 20000""")
    words = Words(
        "Timeline",
        "What the job did from when to when, and whose phase that was. Kept for ETT_SEGMENT_RETENTION_DAYS.",
    )
    timeline = links.page(f"{PAGE}/timeline?{links.WINDOW}", "Its timeline, exact")
    panel = dressed(statetimeline.Panel(), words, [query], "string", timeline, PLAIN).span(24).height(6)
    mapped = {
        name: ValueMappingResult(color=color, index=place)
        for place, (name, color) in enumerate(COLORS.items())
    }
    panel.mappings([ValueMap(options=mapped)]).merge_values(True).show_value(common.VisibilityMode.AUTO)
    return panel.row_height(0.8).line_width(0).legend(
        VizLegendOptions().display_mode(common.LegendDisplayMode.LIST).show_legend(True)
        .placement(common.LegendPlacement.BOTTOM).calcs([])
    )  # fmt: skip


def _details(objectives: Objectives) -> list[Builder[Panel]]:
    return [
        listing(
            Words(
                "Attempts",
                "Each launch of the job. Start-up: until its first step; gap: from its end to the next launch. Loaded: "
                "the step of the checkpoint that it went on from; durable: the newest that it left.",
                NONE,
            ),
            [
                SqlQuery(f"""
                    SELECT attempt_index AS "no.", start_at AS start, outcome, cause, component, gpus, ett AS "ETT",
                        wall_s AS wall, startup_s AS "start-up", replay_s AS replay, gap_s AS gap,
                        loaded_step AS loaded, last_step AS last, durable_step AS durable, saves
                    FROM report.attempts WHERE {JOB} ORDER BY attempt_index DESC LIMIT 200""")
            ],
            [
                Column("start", "dateTimeAsIso"),
                Column("component", link=links.to_component()),
                Column("gpus", GPUS),
                Column("ETT", SHARE, steps=limits.ett(objectives), decimals=1),
                *(Column(name, SECONDS, decimals=0) for name in ("wall", "start-up", "replay", "gap")),
            ],
            link=DETAIL, size=(24, 9),
        ),
        listing(
            Words("Incidents", "What ended its attempts before their time, and what that cost.", "None"),
            [
                SqlQuery(f"""
                    SELECT at, kind, cause, component, status, node, gpu_s / 3600 AS cost, detection_s AS detection,
                        rolled_back_to AS "back to", replayed_steps AS steps
                    FROM report.incidents WHERE {JOB} ORDER BY at_ns DESC LIMIT 200""")
            ],
            [
                Column("at", "dateTimeAsIso"),
                Column("component", link=links.to_component()),
                Column("cost", GPU_HOURS, bar=True, decimals=1),
                Column("detection", SECONDS, decimals=0),
            ],
            link=links.page("/v1/incidents?job=${job:percentencode}", "Its incidents, with their evidence"),
        ),
        listing(
            Words(
                "Who paid, who caused",
                "Direct: phases that the component answers for. Induced: what incidents cost that it caused.",
                NONE,
            ),
            [
                SqlQuery(f"""
                    SELECT component, coalesce(max(owner), component) AS owner, sum(direct) / 3600 AS direct,
                        sum(induced) / 3600 AS induced
                    FROM (
                        SELECT component, gpu_s AS direct, 0 AS induced FROM report.ledger
                        WHERE {JOB} AND heading <> 'productive'
                        UNION ALL SELECT component, 0, gpu_s FROM report.incidents WHERE {JOB}
                    ) losses LEFT JOIN report.owners USING (component)
                    GROUP BY component HAVING sum(direct) + sum(induced) > 0 ORDER BY direct DESC""")
            ],
            [
                Column("component", link=links.to_component()),
                Column("direct", GPU_HOURS, bar=True, decimals=2),
                Column("induced", GPU_HOURS, bar=True, decimals=2),
            ],
            link=links.page(f"{PAGE}/ledger?by=component", "By component, exact"),
        ),
        listing(
            Words(
                "Held up by",
                "Ranks that the others waited for, and for how many GPU-hours: the slowest in start-up, the last "
                "before an end.",
                "Nobody held it up",
            ),
            [
                SqlQuery(f"""
                    SELECT node, rank, sum(gpu_s) / 3600 AS lost, sum(wall_s) AS time FROM report.held_up
                    WHERE {JOB} GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 20""")
            ],
            [Column("lost", GPU_HOURS, bar=True, decimals=2), Column("time", SECONDS, decimals=0)],
            link=links.page("/v1/nodes?job=${job:percentencode}", "Its nodes"), size=(24, 7),
        ),
    ]  # fmt: skip


assert set(COLORS) == set(HEADINGS)
