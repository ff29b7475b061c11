"""The agent's own figures in Prometheus' text format. No label holds a job, a rank or a node."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING, NamedTuple

from ett_collector.agent.ship import VERSION
from ett_collector.agent.sources.running import UP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ett_collector.agent.agent import Agent

GAUGE, COUNTER = "gauge", "counter"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BLOCK_BYTES = 512


class Family(NamedTuple):
    """One metric: name, type, what it says, and its samples (labels, value)."""

    name: str
    type: str
    text: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def render(families: Iterator[Family]) -> str:
    """The page. Values are finite; label values are the agent's own words."""
    lines: list[str] = []
    for one in families:
        lines += [f"# HELP {one.name} {one.text}", f"# TYPE {one.name} {one.type}"]
        for labels, value in one.samples:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{one.name}{{{inner}}} {value!r}" if inner else f"{one.name} {value!r}")
    return "\n".join(lines) + "\n"


def families(agent: Agent) -> Iterator[Family]:
    """All figures of a running agent, as of now."""
    yield Family(
        "ett_agent_build_info", GAUGE, "The agent's version; always 1.", (({"version": VERSION}, 1),)
    )
    yield from _outgoing(agent)
    yield from _incoming(agent)
    health = agent.sources.health()
    yield Family(
        "ett_agent_source_up",
        GAUGE,
        "Whether a source of node facts works; 0 also where there is nothing of its kind.",
        tuple(({"source": one.name}, int(one.state == UP)) for one in health),
    )
    yield Family(
        "ett_agent_source_failures_total",
        COUNTER,
        "Failures of a source.",
        tuple(({"source": one.name}, one.failures) for one in health),
    )
    yield Family(
        "ett_agent_source_findings_total",
        COUNTER,
        "What a source has found, also what another had told.",
        tuple(({"source": one.name}, one.findings) for one in health),
    )
    yield from _process()


def _outgoing(agent: Agent) -> Iterator[Family]:
    outbox, shipper = agent.outbox, agent.shipper
    now, oldest = time.time_ns(), outbox.oldest
    age = max(0, now - oldest) / 1e9 if oldest is not None else 0
    yield _one(
        "ett_agent_oldest_unsent_seconds", GAUGE, "Age of the oldest event that waits to be sent.", age
    )
    yield _one("ett_agent_outbox_events", GAUGE, "Events that wait to be sent.", outbox.backlog)
    yield _one("ett_agent_outbox_bytes", GAUGE, "Bytes of the outbox on disk.", outbox.size)
    yield _one("ett_agent_outbox_limit_bytes", GAUGE, "Where reading on stops.", outbox.limit_bytes)
    yield _one("ett_agent_sent_total", COUNTER, "Events that the service has taken.", shipper.sent)
    yield _one("ett_agent_retried_total", COUNTER, "Requests that have to be tried again.", shipper.retried)
    refused = "Events that the wire or the service refused for good; they are in dead-letters.jsonl."
    yield _one("ett_agent_refused_total", COUNTER, refused, agent.dead.count)
    dropped = agent.node.trainers.dropped + outbox.damaged
    yield _one("ett_agent_dropped_total", COUNTER, "Records and events that are lost for good.", dropped)
    reached = "When the service last answered without an error; 0: never."
    yield _one("ett_agent_last_success_timestamp_seconds", GAUGE, reached, shipper.reached_at or 0)
    offset = "This node's clock minus the service's; 0 before it is measured."
    yield _one("ett_agent_clock_offset_seconds", GAUGE, offset, (agent.offset.value or 0) / 1e9)


def _incoming(agent: Agent) -> Iterator[Family]:
    files, size = spool_size(agent.config.spool_dir)
    yield _one(
        "ett_agent_spool_files", GAUGE, "Files of trainers that are not fully read or still written.", files
    )
    yield _one("ett_agent_spool_bytes", GAUGE, "Bytes that they occupy.", size)
    live = [one for one in list(agent.node.trainers.traces.values()) if one.finished is None]
    trainers = sum(not one.is_launcher for one in live)
    yield _one("ett_agent_trainers", GAUGE, "Recorded trainers that live.", trainers)
    yield _one("ett_agent_jobs", GAUGE, "Jobs of which one lives.", len({one.key[0] for one in live}))


def _process() -> Iterator[Family]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    yield _one("process_cpu_seconds_total", COUNTER, "Processor time of the agent.", used)
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return
    yield _one("process_resident_memory_bytes", GAUGE, "Memory of the agent.", resident)


def spool_size(folder: str) -> tuple[int, int]:
    """(files, bytes that they occupy) of the spools in a folder."""
    files = size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".spool"):
                    files += 1
                    size += entry.stat().st_blocks * BLOCK_BYTES
    except OSError:
        return files, size
    return files, size


def _one(name: str, kind: str, text: str, value: float) -> Family:
    return Family(name, kind, text, (({}, value),))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
