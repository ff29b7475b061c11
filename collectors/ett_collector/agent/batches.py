"""Events as the body of `POST /v1/events`: the bulk form where events are alike, packed."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector.coding import CODING, deflate

if TYPE_CHECKING:
    from collections.abc import Sequence

    Item = tuple[str, dict[str, Any]]  # incarnation and event

GZIP, GZIP_LEVEL = "gzip", 6
BULK_FROM = 2  # alike events


class Body(NamedTuple):
    """The compressed body, its content coding, and its events in the order in which the service counts them."""

    data: bytes
    coding: str
    items: list[Item]


def body(
    agent: dict[str, str], offset: int, sent_at: int, items: Sequence[Item], coding: str = CODING
) -> Body:
    """The body of some events. `offset` and `sent_at` in ns; `coding` is `CODING` or `GZIP`.

    An event of an earlier incarnation carries its own, as the wire asks for.
    """
    alike: dict[tuple[Any, ...], list[Item]] = {}
    for incarnation, event in items:
        row = event if incarnation == agent["incarnation"] else {**event, "incarnation": incarnation}
        key = (row["type"], row.get("job"), row.get("attempt"), *sorted(row))
        alike.setdefault(key, []).append((incarnation, row))
    single = [one for group in alike.values() if len(group) < BULK_FROM for one in group]
    bulk = [group for group in alike.values() if len(group) >= BULK_FROM]
    envelope: dict[str, Any] = {
        "agent": agent,
        "clock_offset_ns": offset,
        "sent_at": sent_at,
        "events": [row for _, row in single],
    }
    if bulk:
        envelope["batches"] = [_bulk([row for _, row in group]) for group in bulk]
    plain = json.dumps(envelope, separators=(",", ":")).encode()
    data = deflate(plain) if coding == CODING else gzip.compress(plain, GZIP_LEVEL)
    return Body(data, coding, [*single, *(one for group in bulk for one in group)])


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
