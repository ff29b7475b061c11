"""How many events came, by what became of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

SLOTS = 32  # writers spread over so many rows of a result

_ADD = text(
    "INSERT INTO ingest_counts (slot, result, n)"
    " SELECT :slot, n.result, n.n FROM unnest(CAST(:results AS text[]), CAST(:amounts AS bigint[])) AS n (result, n)"
    " ON CONFLICT (slot, result) DO UPDATE SET n = ingest_counts.n + EXCLUDED.n"
)


def count_events(conn: Connection, amounts: dict[str, int]) -> None:
    """Add to the counts. Last in its transaction: others of the same slot wait until it ends."""
    told = sorted((result, amount) for result, amount in amounts.items() if amount)
    if told:
        slot = random.randrange(SLOTS)  # noqa: S311 - spreads load, keeps no secret
        results, numbers = zip(*told, strict=True)
        conn.execute(_ADD, {"slot": slot, "results": list(results), "amounts": list(numbers)})
