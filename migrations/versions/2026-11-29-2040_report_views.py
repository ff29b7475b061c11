"""Views for dashboards in a schema of their own, so that a reader needs no right to any table.

Times are there twice: `*_at` for people, `*_ns` for filters, which use the tables' indexes. Durations are seconds,
GPU time is GPU-seconds. A row belongs to one job, node or component, so that the rows of several servers are one table.

Revision: 2026_11_29_2040
Revises: 2026_11_29_1810
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_29_2040"
down_revision = "2026_11_29_1810"
branch_labels = None
depends_on = None


def _moment(ns: str, name: str) -> str:
    return f"to_timestamp({ns} / 1e9) AS {name}"


def _seconds(ns: str, name: str) -> str:
    return f"(({ns}) / 1e9)::float8 AS {name}"


def _told(path: str, name: str, kind: str = "bigint") -> str:
    return f"(summary #>> '{{{path}}}')::{kind} AS {name}"


def _told_seconds(path: str, name: str) -> str:
    return f"((summary #>> '{{{path}}}')::float8 / 1e9) AS {name}"


WHO = "j.job, j.cluster, j.team"
VIEWS = {
    # The whole life of each job; `ett` is by wall time, as the job's own page has it.
    "jobs": f"""
        SELECT job, name, cluster, team, model, framework, live, error, start_ns, end_ns,
            {_moment("start_ns", "start_at")}, {_moment("end_ns", "end_at")}, {_moment("as_of_ns", "as_of_at")},
            (SELECT max(a.gpus) FROM attempts a WHERE a.job_id = j.job_id AND a.index IS NOT NULL) AS gpus,
            {_told("attempts", "attempts")},
            {_told("failures,infra", "failures_infra")},
            {_told("failures,user", "failures_user")},
            {_told("failures,planned", "failures_planned")},
            {_told("failures,unknown", "failures_unknown")},
            {_told("ett", "ett", "float8")}, {_told("ett_gpu", "ett_gpu", "float8")},
            {_told("metrics,expected_ett", "expected_ett", "float8")},
            {_told_seconds("wall_ns", "wall_s")}, {_told_seconds("gpu_ns", "gpu_s")},
            {_told_seconds("metrics,time_to_start_ns", "time_to_start_s")},
            {_told_seconds("metrics,l1,mean_ttr_ns", "incident_s")},
            {_told_seconds("metrics,mean_time_to_failure_ns", "time_to_failure_s")},
            {_told_seconds("metrics,checkpoint_interval_ns", "checkpoint_interval_s")},
            {_told_seconds("metrics,checkpoint_blocking_ns", "checkpoint_blocking_s")},
            {_told_seconds("provisional_ns", "provisional_s")},
            {_told("steps,productive", "steps_productive")},
            {_told("steps,replayed", "steps_replayed")},
            {_seconds("late_ns", "late_s")}
        FROM jobs j""",
    # Each launch of a job; `startup_s`: until its first step, `gap_s`: what followed until the next launch.
    "attempts": f"""
        SELECT {WHO}, a.attempt, a.index AS attempt_index, a.live, a.outcome, a.gpus, a.start_ns, a.end_ns,
            {_moment("a.start_ns", "start_at")}, {_moment("a.end_ns", "end_at")},
            jsonb_array_length(summary -> 'nodes') AS nodes,
            coalesce((summary #>> '{{headings,productive,0}}')::float8, 0)
                / nullif((summary #>> '{{wall_ns}}')::float8, 0) AS ett,
            {_told_seconds("wall_ns", "wall_s")}, {_told_seconds("gpu_ns", "gpu_s")},
            {_told_seconds("restart,0", "startup_s")}, {_told_seconds("replay,0", "replay_s")},
            {_told_seconds("gap,0", "gap_s")}, {_told_seconds("repeated_startup,1", "repeated_startup_gpu_s")},
            {_seconds("(summary #>> '{first_step_at}')::numeric - a.start_ns", "time_to_first_step_s")},
            {_told("first_step", "first_step")}, {_told("last_step", "last_step")},
            {_told("loaded_step", "loaded_step")}, {_told("durable_step", "durable_step")},
            {_told("saves", "saves")}, {_told("steps_productive", "steps_productive")}, a.steps_replayed,
            {_told("failure,cause", "cause", "text")}, {_told("failure,component", "component", "text")}
        FROM attempts a JOIN (SELECT job_id, job, cluster, team FROM jobs) j ON j.job_id = a.job_id
        WHERE a.index IS NOT NULL AND a.summary IS NOT NULL""",
    # What ended attempts before their time, and what that cost, by whom it was caused.
    "incidents": f"""
        SELECT {WHO}, j.model, a.attempt, a.index AS attempt_index, i.at_ns, {_moment("i.at_ns", "at")}, i.outcome,
            i.cause, i.kind, i.component, i.status, i.node, i.rank, i.rolled_back_to, i.replayed_steps,
            {_seconds("i.stall_ns", "stall_s")}, {_seconds("i.gap_ns", "gap_s")},
            {_seconds("i.restart_ns", "restart_s")}, {_seconds("i.replay_ns", "replay_s")},
            {_seconds("i.detection_ns", "detection_s")}, {_seconds("i.gpu_ns", "gpu_s")}
        FROM incidents i JOIN jobs j ON j.job_id = i.job_id
        JOIN attempts a ON a.job_id = i.job_id AND a.attempt_id = i.attempt_id""",
    # The books by hour of the clock: every second under exactly one heading.
    "ledger": f"""
        SELECT {WHO}, a.index AS attempt_index, l.hour_ns, {_moment("l.hour_ns", "hour_at")}, l.heading, l.phase,
            l.component, l.repeated, {_seconds("l.wall_ns", "wall_s")}, {_seconds("l.gpu_ns", "gpu_s")},
            {_seconds("l.settled_wall_ns", "settled_wall_s")}, {_seconds("l.settled_gpu_ns", "settled_gpu_s")}
        FROM ledger l JOIN jobs j ON j.job_id = l.job_id
        JOIN attempts a ON a.job_id = l.job_id AND a.attempt_id = l.attempt_id""",
    # The same without headings, for many jobs at once. An hour may have several rows: add them up.
    "job_hours": f"""
        SELECT {WHO}, h.hour_ns, {_seconds("h.wall_ns", "wall_s")}, {_seconds("h.gpu_ns", "gpu_s")},
            {_seconds("h.productive_gpu_ns", "productive_gpu_s")}
        FROM (
            SELECT job_id, hour_ns, wall_ns, gpu_ns, productive_gpu_ns FROM job_hours
            UNION ALL
            SELECT job_id, hour_ns, wall_ns, gpu_ns, CASE WHEN heading = 'productive' THEN gpu_ns ELSE 0 END
            FROM ledger_deltas
        ) h JOIN jobs j ON j.job_id = h.job_id""",
    # From when to when a job did what (kept for ETT_SEGMENT_RETENTION_DAYS).
    "segments": f"""
        SELECT {WHO}, a.index AS attempt_index, s.start_ns, s.end_ns, {_moment("s.start_ns", "start_at")},
            {_moment("s.end_ns", "end_at")}, s.heading, s.phase, s.component, s.rank, s.node, s.repeated, s.gpus,
            s.settled
        FROM segments s JOIN jobs j ON j.job_id = s.job_id
        JOIN attempts a ON a.job_id = s.job_id AND a.attempt_id = s.attempt_id""",
    # Whom the others of a job waited for, by hour.
    "held_up": f"""
        SELECT {WHO}, a.index AS attempt_index, h.hour_ns, h.node, h.rank, {_seconds("h.wall_ns", "wall_s")},
            {_seconds("h.gpu_ns", "gpu_s")}
        FROM held_up h JOIN jobs j ON j.job_id = h.job_id
        JOIN attempts a ON a.job_id = h.job_id AND a.attempt_id = h.attempt_id""",
    # Work with a key (a compiled graph): the same key again is work that a shared cache would have saved.
    "work": f"""
        SELECT {WHO}, a.index AS attempt_index, w.phase, w.work_key, w.start_ns, w.seen_in_job,
            {_seconds("w.wall_ns", "wall_s")}, {_seconds("w.gpu_ns", "gpu_s")}
        FROM work w JOIN jobs j ON j.job_id = w.job_id
        JOIN attempts a ON a.job_id = w.job_id AND a.attempt_id = w.attempt_id""",
    # When each node's agent was heard of last.
    "nodes": f"""
        SELECT node, last_seen_ns, {_moment("last_seen_ns", "last_seen_at")},
            {_seconds("clock_offset_ns", "clock_offset_s")}, agent_version
        FROM nodes""",
    # Events that were refused; what they said is for the service's own page.
    "refused": f"""
        SELECT received_ns, {_moment("received_ns", "received_at")}, node, reason FROM quarantine""",
    # Whom a component belongs to, where that is not the component itself.
    "owners": "SELECT component, owner FROM owners",
}


def upgrade() -> None:
    """Make the schema, unless whoever owns the database has, and its views."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DO $$ BEGIN IF to_regnamespace('report') IS NULL THEN CREATE SCHEMA report; END IF; END $$")
    for name, query in VIEWS.items():
        op.execute(f"CREATE VIEW report.{name} AS {query}")


def downgrade() -> None:
    """Drop the views; they hold nothing."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP SCHEMA report CASCADE")
