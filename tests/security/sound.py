"""A sound body of all forms of the wire, for fuzzers to damage."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from fleet_ett.http.ingest_routes import EXAMPLE

START = {"type": "attempt_start", "job": "j", "attempt": "a", "ts": 1_764_399_000_000_000_000, "seq": 9}
BEAT = {
    "type": "heartbeat",
    "ts": 1_764_399_000_000_000_000,
    "seq": 10,
    "jobs": [{"job": "j", "attempt": "a"}],
}
SOUND: dict[str, Any] = {**EXAMPLE, "events": [*EXAMPLE["events"], START, BEAT] * 4}
SEEDS = [("json", json.dumps(SOUND).encode()), ("msgpack", msgspec.msgpack.encode(SOUND))]
NAMES = (
    "seq", "type", "job", "attempt", "rank", "phase", "start", "end", "ts", "nodes", "jobs", "columns", "node",
    "incarnation", "labels", "attrs", "clock_offset_ns", "gpus_by_node", "first", "last", "cut", "agent", "events",
    "batches", "span", "kind", "step", "outcome", "cursor_start", "cursor_end", "unit", "work_key", "version",
)  # fmt: skip


def places_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of a body in which a field can be changed; those that were changed away are left out."""
    batches = _objects(body.get("batches"))
    columns = [batch["columns"] for batch in batches if isinstance(batch.get("columns"), dict)]
    return [body, *_objects([body.get("agent")]), *_objects(body.get("events")), *batches, *columns]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
