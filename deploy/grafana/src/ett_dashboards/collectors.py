"""*Collectors' health*: whether the figures can be believed: agents, ingest, what was refused, what nobody reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ett_dashboards import limits, links, variables
from ett_dashboards.board import Board, Section, alerts
from ett_dashboards.panels import (
    COUNT,
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
from ett_dashboards.queries import SqlQuery, increase, now, once, over_time, rows

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.models.dashboard import Panel

    from fleet_ett.rules.objectives import Objectives

NODES = links.page("/v1/nodes", "Nodes")
READY = links.page("/readyz", "Is the service well?")
REFUSED = links.page(f"/v1/quarantine?{links.WINDOW}", "What was refused, and why")
EVENTS = increase("result:ett_events:total")
BAD = increase('result:ett_events:total{result=~"conflict|quarantined|rejected"}')
PER_SECOND, BYTES = "cps", "bytes"
SHOWN = 10  # of thousands of agents, the worst
FULL = 0.8  # of an outbox


def board(objectives: Objectives) -> Board:
    """The dashboard."""
    return Board(
        links.COLLECTORS,
        "Collectors' health",
        "Whether the other dashboards can be believed: is everything reported, shipped, accepted and booked?",
        [*variables.sources(objectives, postgres=True), variables.cluster()],
        [
            Section("The service", _service(objectives)),
            Section("Events", _events(objectives)),
            Section("Agents", _agents(objectives)),
            Section("Nodes", _nodes(objectives)),
        ],
        [alerts()],
    )


def _service(objectives: Objectives) -> list[Builder[Panel]]:
    told = objectives.telemetry
    return [
        number(
            Words("Replicas down", "Replicas of the service that Prometheus cannot scrape.", "None is scraped"),
            now(f'sum(up{{job="{told.service_job}"}} == bool 0)'),
            unit=COUNT, decimals=0, link=READY, steps=limits.at_most(1),
        ),
        number(
            Words("Newest event", "How old the newest event is that the service stores.", "No event yet"),
            now("min(ett_ingest_lag_seconds)"),
            unit=SECONDS, link=NODES, steps=limits.at_most(told.ingest_lag_s),
        ),
        number(
            Words("Books behind by", "How long the oldest change has waited to be booked.", "No event yet"),
            now("min(ett_attribution_lag_seconds)"),
            unit=SECONDS, link=READY, steps=limits.at_most(told.attribution_lag_s),
        ),
        number(
            Words("Refused", "Share of all events in the time range that were refused or contradict another.", "None"),
            now(f"sum({BAD}) / (sum({EVENTS}) > 0)"),
            unit=SHARE, link=REFUSED, steps=limits.at_most(told.refused),
        ),
        number(
            Words("Agents down", "Agents that Prometheus cannot scrape.", "No agent is scraped"),
            now(f'sum(up{{job="{told.agent_job}"}} == bool 0)'),
            unit=COUNT, decimals=0, link=NODES, steps=limits.at_most(1),
        ),
        number(
            Words("Events lost", "Events that agents had to drop in the time range: always 0, or an alert.", "None"),
            now("sum(increase(ett_agent_dropped_total[$__range]))"),
            unit=COUNT, decimals=0, link=NODES, steps=limits.at_most(1),
        ),
    ]  # fmt: skip


def _events(objectives: Objectives) -> list[Builder[Panel]]:
    told = objectives.telemetry
    return [
        graph(
            Words(
                "Events by what became of them",
                "Accepted; duplicate: sent again, which changes nothing; conflict: contradicts another; quarantined: "
                "could not be understood; rejected: not allowed.",
            ),
            [over_time("sum by (result) (rate(result:ett_events:total[5m]))", "{{result}}")],
            unit=PER_SECOND, link=REFUSED,
        ),
        graph(
            Words(
                "Unknown share",
                "Share of GPU time that nothing was reported for, over the last 24 hours: above the line somebody's "
                "recorder or agent is missing.",
                "No GPU was held",
            ),
            [over_time(once("ett_data_quality_ratio", "cluster"), "{{cluster}}")],
            unit=SHARE, link=links.page("/v1/fleet/ett?by=cluster", "ETT by cluster"),
            steps=limits.at_most(told.unknown), look=LIMITED,
        ),
        graph(
            Words("How far behind", "The age of the newest event stored, and of the oldest change not yet booked."),
            [
                over_time("min(ett_ingest_lag_seconds)", "newest event"),
                over_time("min(ett_attribution_lag_seconds)", "oldest change not booked", ref="B"),
            ],
            unit=SECONDS, link=READY, steps=limits.at_most(told.attribution_lag_s), look=LIMITED,
        ),
        listing(
            Words("Refused, by node and reason", "Events of the time range that were refused.", "None was refused"),
            [
                SqlQuery("""
                    SELECT node, reason, count(*) AS events, max(received_at) AS last FROM report.refused
                    WHERE $__unixEpochNanoFilter(received_ns) GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 30""")
            ],
            [Column("events", COUNT), Column("last", "dateTimeAsIso")],
            link=REFUSED,
        ),
    ]  # fmt: skip


def _agents(objectives: Objectives) -> list[Builder[Panel]]:
    behind = objectives.telemetry.agent_behind_s
    furthest = f"topk({SHOWN}, max by (instance) (ett_agent_oldest_unsent_seconds))"
    return [
        graph(
            Words(
                "Furthest behind",
                f"The {SHOWN} agents whose oldest event waits longest to be sent. All at once: look at the service; "
                "one alone: at its node and network.",
                "No agent is scraped",
            ),
            [over_time(furthest, "{{instance}}")],
            unit=SECONDS, link=NODES, steps=limits.at_most(behind), look=LIMITED,
        ),
        graph(
            Words(
                "Fullest outboxes",
                f"The {SHOWN} agents with most unsent events on disk, as a share of what they keep. At 1 they read no "
                "further, and trainers' own files fill up.",
                "No agent is scraped",
            ),
            [
                over_time(
                    f"topk({SHOWN}, max by (instance) (ett_agent_outbox_bytes / (ett_agent_outbox_limit_bytes > 0)))",
                    "{{instance}}",
                )
            ],
            unit=SHARE, link=NODES, steps=limits.at_most(FULL), look=LIMITED,
        ),
        graph(
            Words(
                "What agents send",
                "All agents together: events that the service took, events refused for good, and requests that have to "
                "be tried again.",
                "No agent is scraped",
            ),
            [
                over_time(f"sum(rate(ett_agent_{name}_total[5m]))", legend, ref=ref)
                for name, legend, ref in (
                    ("sent", "sent", "A"), ("refused", "refused", "B"), ("retried", "requests tried again", "C"),
                )
            ],
            unit=PER_SECOND, link=REFUSED,
        ),
        graph(
            Words(
                "What waits on nodes",
                "All nodes together: files of trainers that agents have not read to the end, and unsent events.",
                "No agent is scraped",
            ),
            [
                over_time("sum(ett_agent_spool_bytes)", "files of trainers"),
                over_time("sum(ett_agent_outbox_bytes)", "unsent events", ref="B"),
            ],
            unit=BYTES, link=NODES, look=STACKED,
        ),
        listing(
            Words(
                "Agents to look at",
                f"The {SHOWN} that are furthest behind. Clock: the node's minus the service's.",
                "No agent is scraped",
            ),
            [
                rows(furthest, ref="A"),
                *(
                    rows(f"max by (instance) ({expr}) and on (instance) {furthest}", ref=ref)
                    for ref, expr in (
                        ("B", "ett_agent_outbox_events"),
                        ("C", "ett_agent_spool_bytes"),
                        ("D", "ett_agent_clock_offset_seconds"),
                        ("E", "increase(ett_agent_dropped_total[$__range])"),
                        ("F", "ett_agent_trainers"),
                        ("G", "time() - (ett_agent_last_success_timestamp_seconds > 0)"),
                    )
                ),
            ],
            [
                Column("instance"),
                Column("oldest unsent", SECONDS, "A", steps=limits.at_most(behind), decimals=0),
                Column("unsent", COUNT, "B", decimals=0),
                Column("not read", BYTES, "C"),
                Column("clock", SECONDS, "D", decimals=3),
                Column("lost", COUNT, "E", steps=limits.at_most(1), decimals=0),
                Column("trainers", COUNT, "F", decimals=0),
                Column("last answer", SECONDS, "G", steps=limits.at_most(behind), decimals=0),
            ],
            link=NODES, joined=True, by="oldest unsent",
        ),
        listing(
            Words(
                "Sources of node facts",
                "On how many nodes each source works, and how often it failed in the time range. 0 nodes: there is "
                "nothing of its kind, or nobody lets the agent read it (ett-agent doctor says which).",
                "No agent is scraped",
            ),
            [
                rows("sum by (source) (ett_agent_source_up)", ref="A"),
                rows("count by (source) (ett_agent_source_up)", ref="B"),
                rows("sum by (source) (increase(ett_agent_source_findings_total[$__range]))", ref="C"),
                rows("sum by (source) (increase(ett_agent_source_failures_total[$__range]))", ref="D"),
            ],
            [
                Column("source"),
                Column("works on", COUNT, "A", decimals=0),
                Column("nodes", COUNT, "B", decimals=0),
                Column("found", COUNT, "C", decimals=0),
                Column("failed", COUNT, "D", steps=limits.at_most(1), decimals=0),
            ],
            link=NODES, joined=True, by="works on",
        ),
    ]  # fmt: skip


def _nodes(objectives: Objectives) -> list[Builder[Panel]]:
    behind = objectives.telemetry.agent_behind_s
    return [
        listing(
            Words(
                "Nodes heard of last",
                "The nodes that have been silent for longest. Silent with a job on it: look at its agent.",
                "No node yet",
            ),
            [
                SqlQuery("""
                    SELECT node, extract(epoch FROM now() - last_seen_at) AS silent, clock_offset_s AS "clock",
                        agent_version AS agent
                    FROM report.nodes ORDER BY last_seen_ns LIMIT 50""")
            ],
            [
                Column("silent", SECONDS, steps=limits.at_most(behind), decimals=0),
                Column("clock", SECONDS, decimals=3),
            ],
            link=NODES,
        ),
        listing(
            Words("Versions of the agent", "How many nodes sent with which version in the last day.", "No node yet"),
            [
                SqlQuery("""
                    SELECT coalesce(agent_version, 'unknown') AS agent, count(*) AS nodes FROM report.nodes
                    WHERE last_seen_at > now() - interval '1 day' GROUP BY 1 ORDER BY 2 DESC""")
            ],
            [Column("nodes", COUNT)],
            link=NODES, size=(6, 9),
        ),
        listing(
            Words("Furthest clocks", "Nodes whose clock differs most from the service's; stamps are corrected by it.",
                  "No node yet"),
            [
                SqlQuery("""
                    SELECT node, clock_offset_s AS "clock" FROM report.nodes
                    ORDER BY abs(clock_offset_s) DESC LIMIT 20""")
            ],
            [Column("clock", SECONDS, decimals=3)],
            link=NODES, size=(6, 9),
        ),
    ]  # fmt: skip
