"""The tables, as the migrations make them (a test compares the two).

Times are bigint ns since the epoch in UTC, so that nothing depends on a session's time zone; wall amounts
are ns, `gpu_ns` GPU-ns. One hour's GPU-ns of a job fit a bigint, sums do not: they are numeric everywhere.

Raw: `events`, `job_facts`, `sources`, `quarantine`. Derived, and rebuilt to the same rows from the raw ones:
`ledger` and its sums, `segments`, `held_up`, `work`, `incidents`, and the summaries in `jobs` and `attempts`.
Kept for ever and only rising: `counters` (one job each) and `counter_totals` (their sums, for scrapes).
"""

from __future__ import annotations

from fleet_ett.postgres.tables.access import (
    audit,
    claims,
    token_changes,
    tokens,
)
from fleet_ett.postgres.tables.books import (
    attempt_nodes,
    attempts,
    counter_deltas,
    counter_totals,
    counters,
    held_up,
    incidents,
    jobs,
    ledger,
    owners,
    segments,
    tenants,
    work,
)
from fleet_ett.postgres.tables.metadata import (
    metadata,
)
from fleet_ett.postgres.tables.raw import (
    events,
    ingest_counts,
    job_facts,
    marks,
    nodes,
    quarantine,
    retention,
    sources,
)
from fleet_ett.postgres.tables.rollups import (
    custom_totals,
    fleet_days,
    fleet_hours,
    job_days,
    job_hours,
    job_lives,
    job_totals,
    ledger_days,
    ledger_deltas,
    ledger_lives,
    team_days,
    team_hours,
    tenant_days,
    weight_days,
    weight_hours,
    work_lives,
)
from fleet_ett.postgres.tables.views import hour_segments, views

__all__ = [
    "attempt_nodes",
    "attempts",
    "audit",
    "claims",
    "counter_deltas",
    "counter_totals",
    "counters",
    "custom_totals",
    "events",
    "fleet_days",
    "fleet_hours",
    "held_up",
    "hour_segments",
    "incidents",
    "ingest_counts",
    "job_days",
    "job_facts",
    "job_hours",
    "job_lives",
    "job_totals",
    "jobs",
    "ledger",
    "ledger_days",
    "ledger_deltas",
    "ledger_lives",
    "marks",
    "metadata",
    "nodes",
    "owners",
    "quarantine",
    "retention",
    "segments",
    "sources",
    "team_days",
    "team_hours",
    "tenant_days",
    "tenants",
    "token_changes",
    "tokens",
    "views",
    "weight_days",
    "weight_hours",
    "work",
    "work_lives",
]
