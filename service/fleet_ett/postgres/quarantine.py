"""Refused events, kept for a while and within bounds so that their senders can be helped."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from fleet_ett.ingest import Agent, Refused

MAX_EVENT = 4096  # characters of a refused event that are kept
MAX_OF_BATCH = 1000  # rows that one batch can add
MAX_ROWS = 100_000
MAX_AGE_NS = 30 * 86_400_000_000_000

_ADD = text(
    "INSERT INTO quarantine (received_ns, node, incarnation, seq, position, reason, event, digest)"
    " SELECT :now, :node, :incarnation, n.seq, n.position, n.reason, n.event, n.digest"
    " FROM unnest(CAST(:seqs AS bigint[]), CAST(:positions AS integer[]), CAST(:reasons AS text[]),"
    " CAST(:events AS text[]), CAST(:digests AS bigint[])) AS n (seq, position, reason, event, digest)"
    " ON CONFLICT (digest) DO NOTHING"
)
_PRUNE = text(
    "DELETE FROM quarantine WHERE received_ns < :oldest"
    " OR id <= (SELECT id FROM quarantine ORDER BY id DESC OFFSET :most LIMIT 1)"
)


def add_refused(conn: Connection, agent: Agent, refused: Sequence[Refused], *, now: int) -> int:
    """Keep what was refused; returns how many of them were not refused before in the same words."""
    if not refused:
        return 0
    kept = refused[:MAX_OF_BATCH]
    events = [_event_text(one.event) for one in kept]
    reasons = [one.reason for one in kept]
    if len(refused) > MAX_OF_BATCH:
        reasons[-1] += f" (and {len(refused) - MAX_OF_BATCH} more events of this batch were refused)"
    added = conn.execute(
        _ADD,
        {
            "now": now,
            "node": agent.node,
            "incarnation": agent.incarnation,
            "seqs": [one.seq for one in kept],
            "positions": [one.position for one in kept],
            "reasons": reasons,
            "events": [event[:MAX_EVENT] for event in events],
            "digests": [
                _digest(agent.node, agent.incarnation, event, one.reason)
                for event, one in zip(events, kept, strict=True)
            ],
        },
    ).rowcount
    return added + len(refused) - len(kept)


def prune_quarantine(conn: Connection, *, now: int) -> None:
    """Forget what is old, and the oldest where there is too much."""
    conn.execute(_PRUNE, {"oldest": now - MAX_AGE_NS, "most": MAX_ROWS})


def _event_text(event: object) -> str:
    """The event as JSON where that can be said, else as Python shows it; always storable."""
    try:
        try:
            shown = msgspec.json.encode(event, enc_hook=repr).decode()
        except (TypeError, ValueError, msgspec.MsgspecError):
            shown = json.dumps(event, default=repr)  # lone surrogates, integers of any size
    except (TypeError, ValueError):
        shown = repr(event)
    except RecursionError:
        shown = "(nested too deeply to be shown)"
    return shown.replace("\0", "\ufffd").encode(errors="replace").decode()


def _digest(*parts: str) -> int:
    content = json.dumps(parts).encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True)
