"""Whom others waited for, by the phase and component of that time.

What is booked is told apart by the segments, where they are kept and leave no doubt: all of a rank's time in an
hour, all of it that was lost, or a single part of it is what it held others up for. Else both stay empty.

Revision: 2026_11_30_0020
Revises: 2026_11_30_0010
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_30_0020"
down_revision = "2026_11_30_0010"
branch_labels = None
depends_on = None

HOUR = 3_600_000_000_000
EVER = 2**63 - 1
# The rows, and what long live attempts keep of their last settled hour (`attempts.resume`, up to `books_from`).
TOLD = f"""
CREATE TEMP TABLE told ON COMMIT DROP AS
SELECT row_number() OVER () AS told_id, t.* FROM (
    SELECT job_id, attempt_id, hour_ns, node, rank, wall_ns, gpu_ns, {EVER}::bigint AS until_ns FROM held_up
    UNION ALL
    SELECT job_id, attempt_id, (one ->> 'hour')::bigint, one ->> 'node', (one ->> 'rank')::integer,
        (one ->> 'wall_ns')::bigint, (one ->> 'gpu_ns')::bigint, (resume ->> 'books_from')::bigint
    FROM attempts, json_array_elements(resume -> 'held') one WHERE resume IS NOT NULL
) t;
ANALYZE told;
"""
PARTS = f"""
CREATE TEMP TABLE parts ON COMMIT DROP AS
WITH pieces AS (
    SELECT job_id, attempt_id, hour_ns, node, rank, phase, component, heading NOT IN ('productive', 'replay') AS lost,
        end_ns, gpus, least(end_ns, hour_ns + {HOUR}) - greatest(start_ns, hour_ns) AS wall_ns
    FROM segments, generate_series(start_ns / {HOUR} * {HOUR}, end_ns - 1, {HOUR}) hour_ns WHERE node IS NOT NULL
    OFFSET 0  -- first cut at full hours, then compared
), labels AS (
    SELECT told_id, t.wall_ns AS told_ns, p.phase, p.component, p.lost, sum(p.wall_ns) AS wall_ns,
        sum(p.wall_ns * p.gpus) AS gpu_ns
    FROM told t JOIN pieces p USING (job_id, attempt_id, hour_ns, node, rank)
    WHERE p.end_ns <= t.until_ns GROUP BY 1, 2, 3, 4, 5
), sums AS (
    SELECT *, sum(wall_ns) OVER w AS every_ns, sum(wall_ns) FILTER (WHERE lost) OVER w AS lost_ns,
        count(*) FILTER (WHERE wall_ns = told_ns) OVER w AS alike
    FROM labels WINDOW w AS (PARTITION BY told_id)
)
SELECT told_id, phase, component, sum(wall_ns)::bigint AS wall_ns, sum(gpu_ns)::bigint AS gpu_ns FROM sums
WHERE CASE WHEN every_ns = told_ns THEN true WHEN lost_ns = told_ns THEN lost ELSE alike = 1 AND wall_ns = told_ns END
GROUP BY 1, 2, 3;
INSERT INTO parts SELECT told_id, '', '', wall_ns, gpu_ns FROM told
WHERE NOT EXISTS (SELECT FROM parts p WHERE p.told_id = told.told_id);
ANALYZE parts;
"""
REPLACE = f"""
TRUNCATE held_up;
DROP INDEX held_up_hour, held_up_node;
ALTER TABLE held_up DROP CONSTRAINT held_up_pkey, ADD COLUMN phase text NOT NULL, ADD COLUMN component text NOT NULL;
INSERT INTO held_up (job_id, attempt_id, hour_ns, node, rank, phase, component, wall_ns, gpu_ns)
SELECT job_id, attempt_id, hour_ns, node, rank, phase, component, p.wall_ns, p.gpu_ns
FROM told JOIN parts p USING (told_id) WHERE until_ns = {EVER} ORDER BY hour_ns;
ALTER TABLE held_up ADD PRIMARY KEY (job_id, attempt_id, hour_ns, node, rank, phase, component);
CREATE INDEX held_up_hour ON held_up (hour_ns);
CREATE INDEX held_up_node ON held_up (node, hour_ns);
CREATE INDEX held_up_component ON held_up (component, hour_ns);
ANALYZE held_up;
UPDATE attempts a SET resume = jsonb_set(a.resume::jsonb, '{{held}}', n.held)::json FROM (
    SELECT job_id, attempt_id, jsonb_agg(jsonb_build_object('hour', hour_ns, 'node', node, 'rank', rank,
        'phase', phase, 'component', component, 'wall_ns', p.wall_ns, 'gpu_ns', p.gpu_ns)) AS held
    FROM told JOIN parts p USING (told_id) WHERE until_ns < {EVER} GROUP BY 1, 2
) n WHERE n.job_id = a.job_id AND n.attempt_id = a.attempt_id;
"""
BACK = """
CREATE TEMP TABLE told ON COMMIT DROP AS
SELECT job_id, attempt_id, hour_ns, node, rank, sum(wall_ns)::bigint AS wall_ns, sum(gpu_ns)::bigint AS gpu_ns
FROM held_up GROUP BY 1, 2, 3, 4, 5;
DROP VIEW report.held_up;
TRUNCATE held_up;
DROP INDEX held_up_component;
ALTER TABLE held_up DROP CONSTRAINT held_up_pkey, DROP COLUMN phase, DROP COLUMN component;
INSERT INTO held_up (job_id, attempt_id, hour_ns, node, rank, wall_ns, gpu_ns)
SELECT job_id, attempt_id, hour_ns, node, rank, wall_ns, gpu_ns FROM told ORDER BY hour_ns;
ALTER TABLE held_up ADD PRIMARY KEY (job_id, attempt_id, hour_ns, node, rank);
UPDATE attempts a SET resume = jsonb_set(a.resume::jsonb, '{held}', n.held)::json FROM (
    SELECT job_id, attempt_id, jsonb_agg(jsonb_build_object('hour', hour_ns, 'node', node, 'rank', rank,
        'wall_ns', wall_ns, 'gpu_ns', gpu_ns)) AS held
    FROM (
        SELECT job_id, attempt_id, (one ->> 'hour')::bigint AS hour_ns, one ->> 'node' AS node,
            (one ->> 'rank')::integer AS rank, sum((one ->> 'wall_ns')::bigint)::bigint AS wall_ns,
            sum((one ->> 'gpu_ns')::bigint)::bigint AS gpu_ns
        FROM attempts, json_array_elements(resume -> 'held') one WHERE resume IS NOT NULL GROUP BY 1, 2, 3, 4, 5
    ) t GROUP BY 1, 2
) n WHERE n.job_id = a.job_id AND n.attempt_id = a.attempt_id;
"""
VIEW = """
CREATE {or_replace} VIEW report.held_up AS
SELECT j.job, j.cluster, j.team, a.index AS attempt_index, h.hour_ns, h.node, h.rank,
    (h.wall_ns / 1e9)::float8 AS wall_s, (h.gpu_ns / 1e9)::float8 AS gpu_s{parts}
FROM held_up h JOIN jobs j ON j.job_id = h.job_id
JOIN attempts a ON a.job_id = h.job_id AND a.attempt_id = h.attempt_id
"""


def upgrade() -> None:
    """Add the columns, and fill them: about half a minute for ten million segments."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("LOCK TABLE held_up IN ACCESS EXCLUSIVE MODE")
    op.execute("LOCK TABLE attempts, segments IN SHARE ROW EXCLUSIVE MODE")
    op.execute("SET LOCAL work_mem = '256MB'")
    for script in (TOLD, PARTS, REPLACE):
        op.execute(script)
    op.execute(VIEW.format(or_replace="OR REPLACE", parts=", h.phase, h.component"))


def downgrade() -> None:
    """Add up again what was told apart."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("LOCK TABLE held_up IN ACCESS EXCLUSIVE MODE")
    op.execute("LOCK TABLE attempts IN SHARE ROW EXCLUSIVE MODE")
    op.execute(BACK)
    op.execute(VIEW.format(or_replace="", parts=""))
