"""The folders: where trainers record, what waits to be sent, what was refused."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from ett_collector.agent.checks.line import FAIL, OK, WARN, Line, size
from ett_collector.agent.journal import Journal
from ett_collector.agent.main import is_held
from ett_collector.agent.metrics import spool_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ett_collector.agent.config import AgentConfig

LITTLE_BYTES = 512 * 1024 * 1024
OLD_S = 600.0
TRIES = 5


def check_spool(config: AgentConfig) -> Iterator[Line]:
    """The spool folder and its file system."""
    folder = config.spool_dir
    if not os.path.isdir(folder):
        do = "the first trainer makes it; set the same ETT_SPOOL_DIR for trainers and agent"
        yield Line("spool", WARN, f"{folder} is not there", do)
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        do = "run the agent as the trainers' user or as root: it deletes what it has read"
        yield Line("spool", FAIL, f"{folder} is not readable and writable for user {os.getuid()}", do)
        return
    files, used = spool_size(folder)
    kind, free = file_system(folder, config.procfs), _free(folder)
    said = f"{folder}: {kind or 'unknown file system'}, {size(free)} free, {files} files of {size(used)}"
    do = f"less than {size(LITTLE_BYTES)} free: trainers drop their oldest records when it is full"
    yield Line("spool", OK, said) if free > LITTLE_BYTES else Line("spool", WARN, said, do)


def check_outbox(config: AgentConfig) -> Iterator[Line]:
    """Whether an agent runs, and what it has not sent yet."""
    folder = config.state_dir
    if not os.path.isdir(folder):
        yield Line("agent", WARN, f"none has run with {folder} yet", "start one: ett-agent")
        return
    try:
        running = is_held(folder)
        events, oldest, used = _waiting(folder)
    except OSError as error:
        yield Line("outbox", FAIL, f"{folder}: {error.strerror}", "run as the agent's user or as root")
        return
    yield (
        Line("agent", OK, "runs")
        if running
        else Line("agent", WARN, f"none runs with {folder}", "start ett-agent")
    )
    age = time.time() - oldest / 1e9 if oldest is not None else 0.0
    said = f"{events} events wait, the oldest for {age:.0f} s; {size(used)} of {size(config.outbox_bytes)}"
    if used > config.outbox_bytes:
        yield Line("outbox", FAIL, said, "full: nothing is read on until the service takes some of it")
    elif age > OLD_S:
        yield Line("outbox", WARN, said, "the agent's log says what the service answers")
    else:
        yield Line("outbox", OK, said)


def check_letters(config: AgentConfig) -> Iterator[Line]:
    """Events that were refused for good."""
    reasons: list[str] = []
    for name in ("dead-letters.jsonl.1", "dead-letters.jsonl"):
        try:
            with open(os.path.join(config.state_dir, name), encoding="utf-8") as file:
                reasons += [str(json.loads(line).get("reason", "")) for line in file if line.endswith("}\n")]
        except (OSError, ValueError):
            continue
    if reasons:
        said = f"{len(reasons)} events were refused, the last: {reasons[-1][:200]}"
        do = f"read {config.state_dir}/dead-letters.jsonl; delete it once it is understood"
        yield Line("dead letters", WARN, said, do)
    else:
        yield Line("dead letters", OK, "none")


def file_system(path: str, procfs: str = "/proc") -> str:
    """The type of the file system that holds a path: tmpfs is memory, and empty after a boot."""
    best, kind = "", ""
    try:
        with open(os.path.join(procfs, "self/mounts"), encoding="utf-8", errors="replace") as file:
            for line in file:
                _, place, found, *_ = line.split(" ")
                place = place.replace("\\040", " ").rstrip("/")
                if (path == place or path.startswith(place + "/")) and len(place) >= len(best):
                    best, kind = place, found
    except (OSError, ValueError):
        return kind
    return kind


def _free(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _waiting(folder: str) -> tuple[int, int | None, int]:
    """(events, when the oldest was committed, bytes) of an outbox that another process may be writing."""
    for _ in range(TRIES):
        try:
            return _count(folder)
        except FileNotFoundError:  # sent and deleted while we read
            continue
    return _count(folder)


def _count(folder: str) -> tuple[int, int | None, int]:
    journal = Journal(folder)
    commits: list[tuple[int, int, int | None]] = []  # position after, events, stamp
    position = acked = 0
    for _, record in journal.records():
        if record["k"] == "snapshot":
            position, acked = record["position"], max(acked, record["acked"])
        elif record["k"] == "ack":
            acked = max(acked, record["position"])
        elif record["k"] == "commit" and record["events"]:
            position += len(record["events"])
            commits.append((position, len(record["events"]), record.get("at")))
    waiting = [one for one in commits if one[0] > acked]
    return position - acked, waiting[0][2] if waiting else None, journal.size
