"""Sums of the ledger, so that readers add up thousands of rows and not millions.

At every commit a sum over a roll-up and over `ledger_deltas` is the sum over the ledger (`rollups.py` keeps it so).
Names stand here as text and not as ids: the rows of several servers are then simply one table.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Identity,
    Index,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from fleet_ett.core.taxonomy import HEADINGS
from fleet_ett.postgres.tables.metadata import metadata

LABELS = ("heading", "phase", "component", "repeated")
NAMES = ("cluster", "team", "model", "framework")
AMOUNTS = ("wall_ns", "gpu_ns", "settled_wall_ns", "settled_gpu_ns")
# What readers ask without the labels.
JOB_AMOUNTS = (
    *AMOUNTS,
    "productive_wall_ns",
    "productive_gpu_ns",
    "settled_productive_wall_ns",
    "settled_productive_gpu_ns",
    "unknown_wall_ns",
    "unknown_gpu_ns",
)
# These, and every heading of the contract as a column: a job is one row where it would be a dozen.
WIDE_AMOUNTS = tuple(
    dict.fromkeys(
        (*JOB_AMOUNTS, *(f"{heading}_{unit}" for heading in HEADINGS for unit in ("wall_ns", "gpu_ns")))
    )
)
CUSTOM = "custom:"  # how a heading begins that is none of the contract, and no column of WIDE_AMOUNTS


def _labels() -> list[Column[object]]:
    return [Column(name, Boolean if name == "repeated" else Text, nullable=False) for name in LABELS]


def _amounts(names: tuple[str, ...], *, wide: tuple[str, ...] = ()) -> list[Column[object]]:
    """Columns of ns; sums that may exceed 64 bits are numeric (`wide`: parts of their names)."""
    return [
        Column(name, Numeric if any(part in name for part in wide) else BigInteger, nullable=False)
        for name in names
    ]


# What bookings changed in the ledger since it was last added up: ledger rows taken out (negative) and put in.
# The names are those of the job at that time; a job that changes them takes all its rows out and puts them in again.
ledger_deltas = Table(
    "ledger_deltas",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("delta_id", BigInteger, Identity(always=True), nullable=False),
    *(Column(name, Text, nullable=False) for name in NAMES),
    Column("hour_ns", BigInteger, nullable=False),
    *_labels(),
    *_amounts(AMOUNTS),
    PrimaryKeyConstraint("job_id", "delta_id"),
)

# The fleet by hour and by day, as a whole (`slice` and `name` empty) and by each of NAMES (`slice`: which).
fleet_hours, fleet_days = (
    Table(
        table,
        metadata,
        Column("slice", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column(period, BigInteger, nullable=False),
        *_labels(),
        *_amounts(AMOUNTS, wide=("wall", "gpu")),
        PrimaryKeyConstraint("slice", period, "name", *LABELS),
    )
    for table, period in (("fleet_hours", "hour_ns"), ("fleet_days", "day_ns"))
)

# The fleet by day and all NAMES at once: questions with two of them.
tenant_days = Table(
    "tenant_days",
    metadata,
    Column("day_ns", BigInteger, nullable=False),
    *(Column(name, Text, nullable=False) for name in NAMES),
    *_labels(),
    *_amounts(AMOUNTS, wide=("wall", "gpu")),
    PrimaryKeyConstraint("day_ns", *NAMES, *LABELS),
)

# The ledger by day: a job's attempts and hours together.
ledger_days = Table(
    "ledger_days",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("day_ns", BigInteger, nullable=False),
    *_labels(),
    *_amounts(AMOUNTS, wide=("gpu",)),
    PrimaryKeyConstraint("job_id", "day_ns", *LABELS),
    Index("ledger_days_day", "day_ns", "component"),
    # days of single jobs: of those that a window cuts
    Index("ledger_days_component", "component", "job_id", "day_ns"),
    Index("ledger_days_phase", "phase", "job_id", "day_ns"),
    Index("ledger_days_custom", "job_id", "day_ns", postgresql_where=text(f"heading LIKE '{CUSTOM}%'")),
)

# The ledger of a job's whole life: most jobs lie whole in a long window, and need no more rows than that.
ledger_lives = Table(
    "ledger_lives",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    *_labels(),
    *_amounts(AMOUNTS, wide=("gpu",)),
    PrimaryKeyConstraint("job_id", *LABELS),
    Index("ledger_lives_component", "component", "phase"),
    Index("ledger_lives_phase", "phase"),
    Index("ledger_lives_custom", "job_id", postgresql_where=text(f"heading LIKE '{CUSTOM}%'")),
)

# One row a job and hour, or day: how many jobs held hardware, and the weights of each.
job_hours, job_days = (
    Table(
        table,
        metadata,
        Column("job_id", BigInteger, nullable=False),
        Column(period, BigInteger, nullable=False),
        *_amounts(amounts, wide=wide),
        PrimaryKeyConstraint("job_id", period),
        Index(f"{table}_{period[:-3]}", period),
    )
    for table, period, amounts, wide in (
        ("job_hours", "hour_ns", JOB_AMOUNTS, ()),
        ("job_days", "day_ns", WIDE_AMOUNTS, ("gpu",)),
    )
)

# Keyed work (`work`) of a job's whole life; `seen`: what of it the job had done before.
work_lives = Table(
    "work_lives",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("phase", Text, nullable=False),
    Column("work_key", Text, nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("gpu_ns", Numeric, nullable=False),
    Column("seen_wall_ns", BigInteger, nullable=False),
    Column("seen_gpu_ns", Numeric, nullable=False),
    PrimaryKeyConstraint("job_id", "phase", "work_key"),
)

# One row a job. `last_hour_ns`: the last hour that it has in `job_totals`.
job_lives = Table(
    "job_lives",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    *_amounts(WIDE_AMOUNTS, wide=("gpu",)),
    Column("last_hour_ns", BigInteger, nullable=False, server_default=text("0")),
)

# Running totals: what a job held until the end of an hour, for every hour from its first to its last; and of each
# custom heading, from its first hour to the job's last. A life that a window cuts is one row, not one for each day.
job_totals = Table(
    "job_totals",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("hour_ns", BigInteger, nullable=False),
    *_amounts(WIDE_AMOUNTS, wide=("gpu",)),
    PrimaryKeyConstraint("job_id", "hour_ns"),
    Index("job_totals_hour", "hour_ns"),
)
custom_totals = Table(
    "custom_totals",
    metadata,
    Column("job_id", BigInteger, nullable=False),
    Column("heading", Text, nullable=False),
    Column("hour_ns", BigInteger, nullable=False),
    *_amounts(AMOUNTS[:2], wide=("gpu",)),
    PrimaryKeyConstraint("job_id", "heading", "hour_ns"),
    Index("custom_totals_hour", "hour_ns"),
)

# Of `job_hours` and `job_days`: how many jobs held something, and the sum of their ratios of productive wall time
# (units of 2^-60, each rounded), for the fleet as a whole and by each of NAMES.
weight_hours, weight_days = (
    Table(
        table,
        metadata,
        Column("slice", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column(period, BigInteger, nullable=False),
        Column("jobs", BigInteger, nullable=False),
        Column("ratios", Numeric, nullable=False),
        PrimaryKeyConstraint("slice", period, "name"),
    )
    for table, period in (("weight_hours", "hour_ns"), ("weight_days", "day_ns"))
)

# Every cluster and team by hour and by day, without the labels: what a scrape asks.
team_hours, team_days = (
    Table(
        table,
        metadata,
        Column(period, BigInteger, nullable=False),
        Column("cluster", Text, nullable=False),
        Column("team", Text, nullable=False),
        *_amounts(JOB_AMOUNTS, wide=("wall", "gpu")),
        PrimaryKeyConstraint(period, "cluster", "team"),
    )
    for table, period in (("team_hours", "hour_ns"), ("team_days", "day_ns"))
)
