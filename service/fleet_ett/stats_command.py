"""`fleet-ett stats`: what the database takes up, what a day adds, and what it comes to with these retention settings.

Everything is counted and measured; the projection is what a day was measured to add, times the days kept.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fleet_ett.postgres import counters, rollups, storage, work_lives
from fleet_ett.postgres.reads import snapshot
from fleet_ett.serve import database_url, fleet_of, pool

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from fleet_ett.postgres.storage import Storage
    from fleet_ett.settings import Settings

WEEK = 7  # whole days that a day's growth is the mean of
YEAR = 365
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
STATEMENT_TIMEOUT = "SET LOCAL statement_timeout = 0"


def stats(settings: Settings, args: argparse.Namespace) -> int:
    """Print the figures, of several servers together; with `--check` 1 when the sums are not those of the ledger."""
    parts, wrong, now = [], [], time.time_ns()
    with ExitStack() as stack:
        url = stack.enter_context(database_url(settings))
        engine = stack.enter_context(pool(settings, url))
        fleet = fleet_of(settings, url, engine, stack)
        databases = {"": engine if fleet is None else fleet.home}
        if fleet is not None:
            databases |= {f"server {number}: ": one.engine for number, one in enumerate(fleet.servers)}
        for name, one in databases.items():
            with snapshot(one) as conn:
                conn.exec_driver_sql(STATEMENT_TIMEOUT)
                parts.append(storage.measure(conn, now=now))
                wrong += [f"{name}{told}" for told in (_differences(conn) if args.check else [])]
    told = figures(storage.added_up(parts), settings)
    if args.check:
        told["check"] = wrong
    if args.json:
        print(json.dumps(told, indent=1))
    else:
        print("\n".join(lines(told)))
    return 1 if wrong else 0


def _differences(conn: Connection) -> list[str]:
    return [*rollups.differences(conn), *counters.differences(conn), *work_lives.differences(conn)]


def figures(found: Storage, settings: Settings) -> dict[str, Any]:
    """The figures by name: bytes, rows and days; null where there is nothing to divide by."""
    events = found.table(storage.EVENTS)
    week = found.days[-WEEK:]
    raw_day = _share(sum(day.event_bytes for day in week), len(week))
    jobs_day = _share(sum(day.jobs for day in week), len(week))
    of_job_day = {
        "segments": _share(found.bytes_of("segments"), found.job_days_with_segments),
        "ledger": _share(found.bytes_of("ledger"), found.job_days),
        "rollups": _share(found.bytes_of(*storage.ROLLUPS), found.job_days),
        "books": _share(found.bytes_of(*storage.BOOKS), found.job_days),
    }
    growth = {"events": raw_day} | {name: _times(one, jobs_day) for name, one in of_job_day.items()}
    kept = {"events": settings.retention_days or None, "segments": settings.segment_days or None}
    return {
        "database_bytes": found.database_bytes,
        "bytes_per_event": _share(events.bytes, events.rows),
        "events": events.rows,
        "events_days_kept": None
        if found.events_from is None or found.events_to is None
        else (found.events_to - found.events_from) // storage.DAY_NS,
        "job_days": found.job_days,
        "bytes_per_job_day": of_job_day,
        "measured_days": len(week),
        "events_per_day": _share(sum(day.events for day in week), len(week)),
        "job_days_per_day": jobs_day,
        "growth_bytes_per_day": growth,
        "retention_days": {"events": settings.retention_days, "segments": settings.segment_days},
        "projection_bytes": {
            "after_a_year": {
                name: _times(one, min(kept.get(name) or YEAR, YEAR)) for name, one in growth.items()
            },
            "each_year_more": {
                name: 0 if kept.get(name) else _times(one, YEAR) for name, one in growth.items()
            },
        },
        "tables": [
            {"name": one.name, "rows": one.rows, "bytes": one.bytes, "index_bytes": one.index_bytes}
            for one in found.tables
        ],
    }


def lines(told: dict[str, Any]) -> Iterator[str]:
    """The figures for people."""
    yield f"{'table':18} {'rows':>14} {'on disk':>10} {'indexes':>10} {'a row':>8}"
    for one in told["tables"]:
        if one["rows"]:
            sizes = (one["bytes"], one["index_bytes"], one["bytes"] / one["rows"])
            total, indexes, a_row = map(_bytes, sizes)
            yield f"{one['name']:18} {one['rows']:14,} {total:>10} {indexes:>10} {a_row:>8}"
    yield f"{'database':18} {'':14} {_bytes(told['database_bytes']):>10}"
    yield ""
    days = _number(told["events_days_kept"])
    yield f"a raw event takes {_bytes(told['bytes_per_event'])}; events of {days} days are kept"
    shares = ", ".join(f"{name} {_bytes(one)}" for name, one in told["bytes_per_job_day"].items())
    yield f"a job-day (one job on one UTC day) takes: {shares}; there are {told['job_days']:,}"
    yield (
        f"a day brings {_number(told['events_per_day'])} events and {_number(told['job_days_per_day'])} job-days"
        f" (mean of the last {told['measured_days']} whole days with events)"
    )
    yield ""
    kept, later = told["retention_days"], told["projection_bytes"]
    yield f"{'':10} {'kept':>10} {'a day':>10} {'in a year':>10} {'then a year':>12}"
    for name, growth in told["growth_bytes_per_day"].items():
        days = kept.get(name, 0)
        shown = f"{days} days" if days else "for ever"
        yield (
            f"{name:10} {shown:>10} {_bytes(growth):>10} {_bytes(later['after_a_year'][name]):>10}"
            f" {_bytes(later['each_year_more'][name]):>12}"
        )
    amounts = list(later["after_a_year"].values())
    yield f"all of it in a year: {_bytes(None if None in amounts else sum(amounts))}"
    if "check" in told:
        yield ""
        yield from told["check"] or ["the roll-ups add up to the ledger"]
        if told["check"]:
            yield "`fleet-ett rebuild --sums` makes those of the ledger anew; please report how they came to differ"


def _share(amount: float, count: int) -> float | None:
    return amount / count if count else None


def _times(amount: float | None, count: float | None) -> float | None:
    return None if amount is None or count is None else amount * count


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    """Bytes as people say them."""
    if value is None:
        return "-"
    for unit in UNITS:
        if value < 1000 or unit == UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError
