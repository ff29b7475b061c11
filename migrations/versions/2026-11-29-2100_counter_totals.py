"""Totals of counters in as many rows as there are series: closed labels, no slots; what bookings add is appended.

Revision: 2026_11_29_2100
Revises: 2026_11_29_2040
"""

from __future__ import annotations

import json

from alembic import op
from sqlalchemy import text

from fleet_ett.core.closed import OTHER, closed
from fleet_ett.readings import MAX_TENANTS

revision = "2026_11_29_2100"
down_revision = "2026_11_29_2040"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE tenants (
    cluster text NOT NULL,
    team text NOT NULL,
    since_ns bigint NOT NULL,
    PRIMARY KEY (cluster, team)
);
CREATE TABLE counter_deltas (
    delta_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    labels jsonb NOT NULL,
    value numeric NOT NULL
);
ALTER TABLE ingest_counts ADD COLUMN last_ns bigint;
UPDATE ingest_counts SET last_ns = (SELECT max(last_seen_ns) FROM nodes) WHERE result = 'accepted';
"""
# Those first that had the first jobs, numbered in that order.
TENANTS = """
INSERT INTO tenants (cluster, team, since_ns)
SELECT cluster, team, row_number() OVER (ORDER BY first, cluster, team)
FROM (SELECT cluster, team, min(first) AS first FROM (
    SELECT cluster, team, job_id AS first FROM jobs WHERE summary IS NOT NULL
    UNION ALL SELECT labels ->> 'cluster', labels ->> 'team', job_id FROM counters WHERE labels ? 'team') all_of
  GROUP BY cluster, team) each
ORDER BY first, cluster, team LIMIT :most
"""
LABELS = """
SELECT labels::text FROM counters GROUP BY labels UNION SELECT labels::text FROM counter_totals GROUP BY labels
"""
CLOSE = """
CREATE TEMPORARY TABLE closing ON COMMIT DROP AS
SELECT labels, closed FROM unnest(CAST(:old AS jsonb[]), CAST(:new AS jsonb[])) AS o (labels, closed)
"""
SUMS = """
ANALYZE closing;
CREATE TABLE summed AS
SELECT t.name, c.closed AS labels, sum(t.value) AS value FROM counter_totals t JOIN closing c USING (labels)
GROUP BY 1, 2;
DROP TABLE counter_totals;
CREATE TABLE counter_totals (
    name text NOT NULL,
    labels jsonb NOT NULL,
    value numeric NOT NULL,
    PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);
INSERT INTO counter_totals SELECT name, labels, value FROM summed;
DROP TABLE summed;
CREATE TABLE summed AS
SELECT t.job_id, t.name, c.closed AS labels, sum(t.value) AS value FROM counters t JOIN closing c USING (labels)
WHERE c.closed <> c.labels GROUP BY 1, 2, 3;
DELETE FROM counters t USING closing c WHERE c.labels = t.labels AND c.closed <> c.labels;
INSERT INTO counters AS t (job_id, name, labels, value) SELECT job_id, name, labels, value FROM summed
ON CONFLICT (job_id, name, labels) DO UPDATE SET value = t.value + EXCLUDED.value;
DROP TABLE summed;
"""
# What jobs hold now, kept as counters are.
HELD = """
INSERT INTO counters (job_id, name, labels, value)
SELECT j.job_id, v.name, jsonb_build_object('cluster', CASE WHEN t.cluster IS NOT NULL OR EXISTS
        (SELECT FROM tenants o WHERE o.cluster = j.cluster) THEN j.cluster ELSE 'other' END,
    'team', coalesce(t.team, 'other')), v.value
FROM jobs j LEFT JOIN tenants t USING (cluster, team)
CROSS JOIN LATERAL (SELECT coalesce(sum(a.gpus), 0) AS gpus FROM attempts a WHERE a.job_id = j.job_id AND a.live) g
CROSS JOIN LATERAL (VALUES ('jobs_running', 1::numeric), ('gpus_allocated', g.gpus)) v (name, value)
WHERE j.live AND v.value > 0;
INSERT INTO counter_totals (name, labels, value)
SELECT name, labels, sum(value) FROM counters WHERE name IN ('jobs_running', 'gpus_allocated') GROUP BY name, labels
"""
BACK = """
DELETE FROM counters WHERE name IN ('jobs_running', 'gpus_allocated');
DELETE FROM counter_totals WHERE name IN ('jobs_running', 'gpus_allocated');
DELETE FROM counter_deltas WHERE name IN ('jobs_running', 'gpus_allocated');
CREATE TABLE summed AS
SELECT name, labels, sum(value) AS value FROM (SELECT name, labels, value FROM counter_totals
    UNION ALL SELECT name, labels, value FROM counter_deltas) t GROUP BY name, labels;
DROP TABLE counter_totals, counter_deltas, tenants;
CREATE TABLE counter_totals (
    slot smallint NOT NULL,
    name text NOT NULL,
    labels jsonb NOT NULL,
    value numeric NOT NULL,
    PRIMARY KEY (slot, name, labels)
) WITH (fillfactor = 50);
INSERT INTO counter_totals SELECT 0, name, labels, value FROM summed;
DROP TABLE summed;
ALTER TABLE ingest_counts DROP COLUMN last_ns;
"""


def upgrade() -> None:
    """Make the tables, and put what was counted under closed labels. No series falls, none loses its name."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("LOCK TABLE jobs, counters, counter_totals IN SHARE ROW EXCLUSIVE MODE")
    op.execute(TABLES)
    conn = op.get_bind()
    conn.execute(text(TENANTS), {"most": MAX_TENANTS})
    old = list(conn.execute(text(LABELS)).scalars())
    pairs = {(one, other) for one, other in conn.execute(text("SELECT cluster, team FROM tenants"))}
    conn.execute(
        text(CLOSE), {"old": old, "new": [json.dumps(_closed(json.loads(one), pairs)) for one in old]}
    )
    op.execute(SUMS)
    op.execute(HELD)


def downgrade() -> None:
    """Back to one slot of many; labels stay closed."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(BACK)


def _closed(labels: dict[str, str], pairs: set[tuple[str, str]]) -> dict[str, str]:
    out = dict(closed(tuple(labels.items())))
    cluster = out.get("cluster", "")
    if "team" in out and (cluster, out["team"]) not in pairs:
        out["team"] = OTHER
    if cluster not in {one for one, _ in pairs}:
        out["cluster"] = OTHER
    return out
