"""The tables, as the migrations make them (a test compares the two).

Times are bigint ns since the epoch in UTC, so that nothing depends on a session's time zone; wall amounts
are ns, `gpu_ns` GPU-ns. One hour's GPU-ns of a job fit a bigint, sums do not: they are numeric everywhere.

Raw: `events`, `job_facts`, `sources`, `quarantine`. Derived, and rebuilt to the same rows from the raw ones:
`ledger`, `segments`, `held_up`, `work`, `incidents`, and the summaries in `jobs` and `attempts`. Kept for ever
and only rising: `counters` (one job each) and `counter_totals` (their sums, for scrapes).
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
    counter_totals,
    counters,
    held_up,
    incidents,
    jobs,
    ledger,
    owners,
    segments,
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

__all__ = [
    "attempt_nodes",
    "attempts",
    "audit",
    "claims",
    "counter_totals",
    "counters",
    "events",
    "held_up",
    "incidents",
    "ingest_counts",
    "job_facts",
    "jobs",
    "ledger",
    "marks",
    "metadata",
    "nodes",
    "owners",
    "quarantine",
    "retention",
    "segments",
    "sources",
    "token_changes",
    "tokens",
    "work",
]
