"""Books of a large fleet, made up set by set in SQL: what `readers.py` asks.

Jobs that begin over the days and run for about 110 hours, 5 attempts each, 8 labels in a usual hour, more in an
attempt's first. Segments are laid down piece by piece of (attempt, hour), and the ledger is their sums; rows lie in
the order of time, as bookings write them. Rows of the raw tables are only what readers look at. Everything follows
from `setseed`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import psycopg

from fleet_ett.core.ledger import attribute
from fleet_ett.postgres import partitions
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.refill import make_sums_anew
from tests.http.story import rollback

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3_600_000_000_000
DAY = 24 * HOUR
ATTEMPTS = 5
NODES = 12_500

# kind of piece, place in it, heading, phase, component, share of the piece
PATTERNS = """
CREATE TEMP TABLE patterns (kind text, place int, heading text, phase text, component text, share float8,
  blamed boolean);
INSERT INTO patterns VALUES
 ('first', 1, 'startup', 'node_prolog', 'hw_fleet', 0.01, false),
 ('first', 2, 'startup', 'image_pull', 'container_image', 0.02, false),
 ('first', 3, 'startup', 'rendezvous', 'launcher', 0.01, false),
 ('first', 4, 'startup', 'process_import', 'trainer', 0.01, false),
 ('first', 5, 'startup', 'process_group_init', 'comms', 0.01, false),
 ('first', 6, 'startup', 'model_build', 'trainer', 0.02, false),
 ('first', 7, 'startup', 'checkpoint_load', 'checkpoint', 0.03, false),
 ('first', 8, 'startup', 'compile_cold', 'compiler', 0.06, false),
 ('first', 9, 'replay', 'step_replayed', 'checkpoint', 0.10, false),
 ('first', 10, 'productive', 'step_new_data', 'model_owner', 0.73, false),
 ('even', 1, 'productive', 'step_new_data', 'model_owner', 0.86, false),
 ('even', 2, 'data_wait', 'data_stall', 'data', 0.03, true),
 ('even', 3, 'checkpoint', 'checkpoint_save_block', 'checkpoint', 0.02, false),
 ('even', 4, 'evaluation', 'evaluation', 'model_owner', 0.03, false),
 ('even', 5, 'compile', 'recompile_in_loop', 'compiler', 0.01, false),
 ('even', 6, 'custom:straggler_excess', 'straggler_excess', 'hw_fleet', 0.02, true),
 ('even', 7, 'unknown', 'unaccounted', 'unowned', 0.01, false),
 ('even', 8, 'custom:log_sync', 'log_sync', 'unowned', 0.02, false),
 ('odd', 1, 'productive', 'step_new_data', 'model_owner', 0.88, false),
 ('odd', 2, 'data_wait', 'data_stall', 'data', 0.02, true),
 ('odd', 3, 'checkpoint', 'checkpoint_save_block', 'checkpoint', 0.02, false),
 ('odd', 4, 'evaluation', 'evaluation', 'model_owner', 0.02, false),
 ('odd', 5, 'compile', 'recompile_in_loop', 'compiler', 0.01, false),
 ('odd', 6, 'stall', 'hang', 'observability', 0.01, false),
 ('odd', 7, 'custom:log_sync', 'log_sync', 'unowned', 0.02, false),
 ('odd', 8, 'custom:eval_upload', 'eval_upload', 'unowned', 0.02, false),
 ('last', 1, 'productive', 'step_new_data', 'model_owner', 0.80, false),
 ('last', 2, 'checkpoint', 'checkpoint_save_block', 'checkpoint', 0.03, false),
 ('last', 3, 'aborted_step', 'step_aborted', 'checkpoint', 0.01, false),
 ('last', 4, 'stall', 'hang', 'observability', 0.10, true),
 ('last', 5, 'shutdown', 'drain_and_teardown', 'launcher', 0.06, false),
 ('gap', 1, 'gap', 'requeue_wait', 'scheduler', 1.0, false);
CREATE TEMP TABLE bounds AS SELECT *,
 sum(share) OVER w - share AS low, sum(share) OVER w AS high FROM patterns WINDOW w AS (PARTITION BY kind
  ORDER BY place);
"""
JOBS = """
CREATE TEMP TABLE fleet AS
SELECT n, start_ns, least(start_ns + length_ns, %(now)s) AS end_ns, start_ns + length_ns > %(now)s AS live,
 'cluster-' || 1 + floor(5 * c)::int AS cluster, 'team-' || lpad((1 + floor(20 * t * t))::int::text, 2,
  '0') AS team,
 'model-' || lpad((1 + 3 * floor(20 * t * t) + floor(3 * m))::int::text, 2, '0') AS model,
 (ARRAY['pytorch', 'torchtitan', 'jax'])[1 + floor(3 * m)::int] AS framework,
 8 * 2 ^ floor(8 * g * g) AS gpus, floor(%(nodes)s * d)::int AS first_node
FROM (SELECT n, %(now)s - %(hour)s - floor(%(span)s::float8 * random())::bigint AS start_ns,
  floor((20 - 90 * ln(1 - random())) * %(hour)s)::bigint AS length_ns,
  random() AS c, random() AS t, random() AS m, random() AS g, random() AS d FROM generate_series(1,
  %(jobs)s) n) r;
INSERT INTO jobs (job, name, cluster, team, model, framework, start_ns, end_ns, live, as_of_ns, summary)
SELECT cluster || '/' || 100000 + n || '/' || start_ns / 1000000000, model, cluster, team, model,
  framework, start_ns,
 CASE WHEN live THEN NULL ELSE end_ns END, live, CASE WHEN live THEN %(now)s ELSE end_ns END, CAST(%(job)s
  AS jsonb)
FROM fleet ORDER BY start_ns;
CREATE TEMP TABLE tries AS
SELECT j.job_id, k AS index, j.live AND k = %(attempts)s - 1 AS live, f.gpus::bigint AS gpus, f.first_node,
 f.start_ns + floor((f.end_ns - f.start_ns) * (k + CASE WHEN k = 0 THEN 0 ELSE 0.6 * random() END) /
  %(attempts)s)::bigint
  AS start_ns, f.end_ns AS job_end
FROM fleet f JOIN jobs j ON j.job = f.cluster || '/' || 100000 + f.n || '/' || f.start_ns / 1000000000,
 generate_series(0, %(attempts)s - 1) k;
CREATE TEMP TABLE spans AS
SELECT job_id, row_number() OVER (ORDER BY start_ns, job_id)::int AS attempt_id, index, live, gpus,
  first_node, start_ns,
 CASE WHEN following IS NULL THEN job_end ELSE following - least((following - start_ns) / 4, gap) END AS
  end_ns, following
FROM (SELECT *, lead(start_ns) OVER (PARTITION BY job_id ORDER BY index) AS following,
 floor((2 + 38 * random()) * 60e9)::bigint AS gap FROM tries) t;
INSERT INTO attempts (job_id, attempt_id, attempt, first_ns, last_ns, alloc_ns, dirty, index, start_ns,
  end_ns, live,
 outcome, gpus, link_digest, as_of_ns, carry, summary) OVERRIDING SYSTEM VALUE
SELECT job_id, attempt_id, 'slurm:' || job_id || ':' || index, start_ns, end_ns, start_ns, false, index,
  start_ns,
 CASE WHEN live THEN NULL ELSE end_ns END, live, CASE WHEN live THEN 'unknown' WHEN following IS NULL THEN
  'completed'
 ELSE 'failed' END, gpus, 'x', end_ns, '{}', CAST(%(attempt)s AS jsonb) FROM spans;
"""
SEGMENTS = """
INSERT INTO segments (job_id, attempt_id, start_ns, end_ns, heading, phase, component, rank, node,
  repeated, gpus, settled)
SELECT job_id, attempt_id, s, e, heading, phase, component,
 CASE WHEN blamed THEN 8 * who END, CASE WHEN blamed THEN 'gpu-' || lpad(((first_node + who) %%
  %(nodes)s)::text, 5, '0') END,
 heading = 'replay' OR (heading = 'startup' AND index > 0), CASE WHEN heading = 'gap' THEN 0 ELSE gpus END,
 e <= %(now)s - 900000000000
FROM (SELECT p.*, b.heading, b.phase, b.component, b.blamed AND random() < 0.25 AS blamed,
  low_ns + floor((high_ns - low_ns) * b.low)::bigint AS s,
  CASE WHEN b.high > 0.999 THEN high_ns ELSE low_ns + floor((high_ns - low_ns) * b.high)::bigint END AS e,
  floor(greatest(gpus / 8, 1) * random() * random())::int AS who
 FROM (SELECT a.*, greatest(a.start_ns, h * %(hour)s) AS low_ns, least(a.end_ns, (h + 1) * %(hour)s) AS
  high_ns,
   CASE WHEN h = a.start_ns / %(hour)s THEN 'first' WHEN h = (a.end_ns - 1) / %(hour)s AND NOT a.live THEN
  'last'
   WHEN (h + a.job_id) %% 2 = 0 THEN 'even' ELSE 'odd' END AS kind
  FROM spans a, generate_series(a.start_ns / %(hour)s, (a.end_ns - 1) / %(hour)s) h
  UNION ALL SELECT a.*, greatest(a.end_ns, h * %(hour)s), least(a.following, (h + 1) * %(hour)s), 'gap'
  FROM spans a, generate_series(a.end_ns / %(hour)s, (a.following - 1) / %(hour)s) h WHERE a.following >
  a.end_ns) p
 JOIN bounds b USING (kind)) q
WHERE e > s ORDER BY e;
"""
LEDGER = """
INSERT INTO ledger SELECT job_id, attempt_id, start_ns / %(hour)s * %(hour)s, heading, phase, component,
  repeated,
 end_ns - start_ns, (end_ns - start_ns) * gpus, CASE WHEN settled THEN end_ns - start_ns ELSE 0 END,
 CASE WHEN settled THEN (end_ns - start_ns) * gpus ELSE 0 END FROM segments;
"""
REST = """
INSERT INTO held_up (job_id, attempt_id, hour_ns, node, rank, phase, component, wall_ns, gpu_ns)
 SELECT job_id, attempt_id, start_ns / %(hour)s * %(hour)s AS hour_ns, node, rank, phase, component,
 sum(end_ns - start_ns)::bigint, sum((end_ns - start_ns) * gpus)::bigint FROM segments WHERE node IS NOT NULL
 GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY hour_ns;
INSERT INTO work SELECT a.job_id, a.attempt_id, p.phase, p.phase || ':' || CASE p.phase
 WHEN 'preproc_creation' THEN 'data-' || a.job_id %% 900 ELSE j.model || ':' || a.gpus || ':' || a.job_id
  %% 4 END,
 a.start_ns + 60000000000, p.wall, p.wall * a.gpus, a.index > 0 FROM spans a JOIN jobs j USING (job_id),
 (VALUES ('compile_cold', 200000000000), ('kernel_autotune', 40000000000), ('preproc_creation',
  60000000000)) p (phase, wall);
INSERT INTO incidents SELECT a.job_id, a.attempt_id, a.end_ns, 'failed', c.cause, c.kind, c.component,
  'confirmed', '[]',
 CASE WHEN c.kind = 'infra' THEN 'gpu-' || lpad(((first_node + a.index) %% %(nodes)s)::text, 5, '0') END,
  NULL,
 120000000000, a.following - a.end_ns, 300000000000, 360000000000, 780000000000 * a.gpus::numeric,
  120000000000, 100, 50
 FROM (SELECT *, floor(8 * random())::int AS pick FROM spans WHERE following IS NOT NULL) a JOIN (VALUES
 (0, 'gpu_off_bus', 'infra', 'hw_fleet'), (1, 'nccl_timeout', 'unknown', 'unowned'), (2, 'link_flap',
  'infra', 'network'),
 (3, 'user_code_exception', 'user', 'model_owner'), (4, 'preemption', 'planned', 'scheduler'),
 (5, 'gpu_oom', 'user', 'model_owner'), (6, 'data_service_error', 'infra', 'data'),
 (7, 'remote_storage_error', 'infra', 'storage')) c (pick, cause, kind, component) USING (pick);
INSERT INTO attempt_nodes SELECT DISTINCT 'gpu-' || lpad(((first_node + k) %% %(nodes)s)::text, 5, '0'),
  job_id, attempt_id
 FROM spans, generate_series(0, greatest(gpus / 8, 1) - 1) k;
INSERT INTO nodes SELECT 'gpu-' || lpad(n::text, 5, '0'), %(now)s - n * 1000000::bigint, 0, '1.0' FROM
  generate_series(0, %(nodes)s - 1) n;
INSERT INTO sources (incarnation, node, last_seq) SELECT node, node, 1000 FROM nodes ORDER BY node;
INSERT INTO events (job_id, source_id, seq, start_ns, digest, clock_offset_ns, type, body)
 SELECT -1, 1 + n %% %(nodes)s, n, %(now)s - floor(random() * %(kept)s)::bigint, n, 0, 8, '{"kind":"xid","code":79}'
 FROM generate_series(1, 20000) n;
INSERT INTO quarantine (received_ns, node, incarnation, position, reason, event, digest)
 SELECT %(now)s - n * 1000000000::bigint, 'gpu-' || lpad((n %% %(nodes)s)::text, 5, '0'), 'i', 0, 'a
  reason', '{}', n
 FROM generate_series(1, 5000) n;
INSERT INTO tenants SELECT cluster, team, min(job_id) FROM jobs GROUP BY cluster, team;
INSERT INTO counters SELECT job_id, 'gpu_seconds', jsonb_build_object('cluster', cluster, 'team', team,
  'heading', CASE WHEN heading LIKE 'custom:%%' THEN 'custom' ELSE heading END),
 sum(settled_gpu_ns) FROM ledger JOIN jobs USING (job_id) GROUP BY 1, 2, 3;
INSERT INTO counters SELECT job_id, 'lost_gpu_seconds', jsonb_build_object('cluster', cluster, 'component',
  component, 'phase', CASE WHEN phase IN ('log_sync', 'eval_upload') THEN 'custom' ELSE phase END,
 'repeated', repeated::text), sum(settled_gpu_ns) FROM ledger JOIN jobs USING (job_id)
 WHERE heading <> 'productive' GROUP BY 1, 2, 3;
INSERT INTO counters SELECT job_id, v.name, jsonb_build_object('cluster', cluster, 'team', team), v.value FROM jobs j,
 LATERAL (SELECT sum(gpus) AS gpus FROM attempts a WHERE a.job_id = j.job_id AND a.live) g,
 LATERAL (VALUES ('jobs_running', 1), ('gpus_allocated', g.gpus)) v (name, value) WHERE j.live;
INSERT INTO counter_totals SELECT name, labels, sum(value) FROM counters GROUP BY 1, 2;
"""
NUMBER = "SELECT setval(pg_get_serial_sequence('attempts', 'attempt_id'), max(attempt_id)) FROM attempts"
# Large tables are filled first and keyed then.
KEYS = (
    ("segments", "segments_pkey", "PRIMARY KEY (job_id, start_ns, attempt_id)"),
    (
        "ledger",
        "ledger_pkey",
        "PRIMARY KEY (job_id, attempt_id, hour_ns, heading, phase, component, repeated)",
    ),
)


def fill(url: str, conninfo: str, *, jobs: int, days: int) -> int:
    """Fill an empty database at the newest migration; returns the time (ns) as of which its books are."""
    now = time.time_ns()
    story = attribute(rollback("template", gpus=16).events())
    told: dict[str, object] = {
        "now": now, "hour": HOUR, "span": (days + 4) * DAY, "kept": 14 * DAY, "jobs": jobs, "attempts": ATTEMPTS,
        "nodes": NODES, "job": json.dumps(story.summary.to_json()),
        "attempt": json.dumps(story.attempts[0].summary.to_json()),
    }  # fmt: skip
    engine = open_pool(url)
    with engine.begin() as conn:
        partitions.add_partitions(conn, range(now // DAY - 14, now // DAY + 3), now=now)
    with psycopg.connect(conninfo) as conn:
        conn.execute("SET synchronous_commit = off; SET work_mem = '256MB'; SET maintenance_work_mem = '1GB'")
        conn.execute("SELECT setseed(0.3)")
        indexes = list(_take_indexes(conn))
        for name, script in (("jobs", PATTERNS + JOBS), ("segments", SEGMENTS), ("ledger", LEDGER)):
            _say(f"filling {name}")
            _run(conn, script, told)
        _say("keys and indexes")
        for table, name, key in KEYS:
            conn.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {key}")
        for definition in indexes:
            conn.execute(definition)
        _say("filling the rest")
        _run(conn, REST, told)
        conn.execute(NUMBER)
    _say("sums, by the product's own code")
    make_sums_anew(engine)
    engine.dispose()
    with psycopg.connect(conninfo, autocommit=True) as conn:
        _say("vacuum and analyze")
        conn.execute("VACUUM (ANALYZE)")
    return now


def _take_indexes(conn: psycopg.Connection) -> Iterator[str]:
    """Drop keys and indexes of the large tables; gives the statements that make the indexes again."""
    for table, name, _ in KEYS:
        found = conn.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s AND indexname <> %s",
            (table, name),
        ).fetchall()
        for index, definition in found:
            yield definition
            conn.execute(f"DROP INDEX {index}")
        conn.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def _run(conn: psycopg.Connection, script: str, told: dict[str, object]) -> None:
    for statement in script.split(";\n"):
        if statement.strip():
            conn.execute(statement.encode(), told)


def _say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)
