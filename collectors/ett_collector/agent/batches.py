"""Events as the body of `POST /v1/events`: the bulk form where events are alike, gzip level 1."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

GZIP_LEVEL = 1
BULK_FROM = 2  # alike events


def body(
    agent: dict[str, str], offset: int, sent_at: int, items: Sequence[tuple[str, dict[str, Any]]]
) -> bytes:
    """The compressed body; `items` are (incarnation, event). `offset` and `sent_at` in ns.

    An event of an earlier incarnation carries its own, as the wire asks for.
    """
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for incarnation, event in items:
        row = event if incarnation == agent["incarnation"] else {**event, "incarnation": incarnation}
        key = (row["type"], row.get("job"), row.get("attempt"), row.get("rank"), *sorted(row))
        alike.setdefault(key, []).append(row)
    events: list[dict[str, Any]] = []
    batches: list[dict[str, Any]] = []
    for rows in alike.values():
        if len(rows) < BULK_FROM:
            events += rows
        else:
            batches.append(_bulk(rows))
    envelope: dict[str, Any] = {
        "agent": agent,
        "clock_offset_ns": offset,
        "sent_at": sent_at,
        "events": events,
    }
    if batches:
        envelope["batches"] = batches
    return gzip.compress(json.dumps(envelope, separators=(",", ":")).encode(), GZIP_LEVEL)


def _bulk(rows: list[dict[str, Any]]) -> dict[str, Any]:
    first = rows[0]
    constants: dict[str, Any] = {}
    columns: dict[str, list[Any]] = {}
    for name in first:
        values = [row[name] for row in rows]
        if name != "seq" and all(value == values[0] and type(value) is type(values[0]) for value in values):
            constants[name] = values[0]
        else:
            columns[name] = values
    return {**constants, "columns": columns}
