"""How many events came, by what became of them, and when the last ones did."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

SLOTS = 32  # writers spread over so many rows of a result

_ADD = text(
    "INSERT INTO ingest_counts (slot, result, n, last_ns)"
    " SELECT :slot, n.result, n.n, :now"
    " FROM unnest(CAST(:results AS text[]), CAST(:amounts AS bigint[])) AS n (result, n)"
    " ON CONFLICT (slot, result) DO UPDATE SET n = ingest_counts.n + EXCLUDED.n,"
    " last_ns = greatest(ingest_counts.last_ns, EXCLUDED.last_ns)"
)


def count_events(conn: Connection, amounts: dict[str, int], *, now: int) -> None:
    """Add to the counts what came at `now` (ns). Last in its transaction: others of a slot wait until it ends."""
    told = sorted((result, amount) for result, amount in amounts.items() if amount)
    if told:
        slot = random.randrange(SLOTS)  # noqa: S311 - spreads load, keeps no secret
        results, numbers = zip(*told, strict=True)
        conn.execute(_ADD, {"slot": slot, "now": now, "results": list(results), "amounts": list(numbers)})
