"""Days of raw events: partitions made ahead and on demand, thinned and dropped when their time is over.

A partition is one UTC day; of days long past, which only a backfill brings, one is a whole month, so that a
sender of nonsense stamps cannot make thousands of tables. Bounds are plain integers: no time zone has a say.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    Bounds = tuple[int, int]

DAY_NS = 86_400_000_000_000
DAYS_APART = 60  # a day older than so many gets its whole month
AHEAD_DAYS = 2
LOCK = 0x6574_7402

_LISTED = text(
    "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) AS bound FROM pg_inherits i"
    " JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = CAST('events' AS regclass)"
)
_BOUND = re.compile(r"FROM \('?(-?\d+)'?\) TO \('?(-?\d+)'?\)")


def partitions(conn: Connection) -> dict[str, Bounds]:
    """The partitions by name, in order of their bounds [from, to) in ns."""
    found: dict[str, Bounds] = {}
    for name, bound in conn.execute(_LISTED):
        if bound is None:  # dropped while we look
            continue
        match = _BOUND.search(bound)
        assert match is not None, bound
        found[name] = (int(match[1]), int(match[2]))
    return dict(sorted(found.items(), key=lambda item: item[1]))


def add_partitions(conn: Connection, days: Iterable[int], *, now: int) -> None:
    """Make the partitions that those days (numbers since 1970, UTC) lack; `now` in ns.

    Safe for several at once; reads and inserts go on.
    """
    conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    there = list(partitions(conn).values())
    for day in sorted(days):
        if not any(low <= day * DAY_NS < high for low, high in there):
            low, high = _free(there, day * DAY_NS, _period(day, now))
            name = _name(low, high)
            # attached, not created as a partition: that would stop every reader for a moment
            conn.execute(text(f"CREATE TABLE {name} (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"))
            conn.execute(
                text(f"ALTER TABLE events ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({high})")
            )
            there.append((low, high))


def days_ahead(now: int) -> list[int]:
    """Today and the days to come, for which there should always be a partition."""
    return [now // DAY_NS + days for days in range(AHEAD_DAYS + 1)]


def _period(day: int, now: int) -> Bounds:
    """The day, or its month when that is long ago."""
    if day >= now // DAY_NS - DAYS_APART:
        return day * DAY_NS, (day + 1) * DAY_NS
    first = datetime.fromtimestamp(day * DAY_NS // 1_000_000_000, timezone.utc).replace(day=1)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp()) * 1_000_000_000, int(following.timestamp()) * 1_000_000_000


def _free(there: Iterable[Bounds], stamp: int, period: Bounds) -> Bounds:
    """The part of the period around the stamp that no partition holds yet."""
    low, high = period
    for start, end in there:
        if end <= stamp:
            low = max(low, end)
        if start > stamp:
            high = min(high, start)
    return low, high


def _name(low: int, high: int) -> str:
    first = datetime.fromtimestamp(low // 1_000_000_000, timezone.utc)
    name = f"events_{first:%Y%m%d}"
    days = (high - low) // DAY_NS
    return name if days == 1 else f"{name}_{days}"
