"""How many jobs held something in each hour and day, and the sum of their ratios: what no sum of time tells.

A ratio is not linear in what bookings change, so a change is told as the job's share before, taken away, and its share
after. `changed` says so of any rows like those of `ledger_deltas`: of those that are folded just now, and of those that
readers still find beside the roll-ups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.postgres.tables.rollups import NAMES
from fleet_ett.reads import DAY_NS

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Ratios are added up as integers of this unit: their sum is the same in any order, and on any number of servers.
FINE = "1152921504606846976::float8"
# Of a table of weights: its period, that of a delta, and the roll-up by job that it is of.
KEPT = {
    "weight_hours": ("hour_ns", "d.hour_ns", "job_hours"),
    "weight_days": ("day_ns", f"d.hour_ns - d.hour_ns % {DAY_NS}", "job_days"),
}

_NAMES = ", ".join(NAMES)
_SLICES = "(VALUES ('', ''), {}) AS s (slice, name)".format(
    ", ".join(f"('{name}', c.{name})" for name in NAMES)
)


def changed(table: str, source: str) -> str:
    """SQL: what rows of `source` (columns of `ledger_deltas`) change in a table of weights before they are folded.

    Columns: the period, NAMES, jobs, ratios; a job that moved to other names has rows under both. What was folded of
    a job stands under its first names: those under which all of it was taken out. Its last ones are those under which
    there is more than nothing; whatever came between has cancelled itself.
    """
    own, period, by_job = KEPT[table]
    productive = "coalesce(sum(wall_ns) FILTER (WHERE heading = 'productive'), 0)"
    return f"""
        WITH net AS (
            SELECT job_id, {period} AS period, {_NAMES}, sum(wall_ns) AS wall_ns, {productive} AS productive_wall_ns
            FROM {source} d GROUP BY job_id, {period}, {_NAMES} HAVING sum(wall_ns) <> 0 OR {productive} <> 0
        ), named AS (
            SELECT job_id, {_NAMES}, sum(wall_ns) AS wall_ns FROM net GROUP BY job_id, {_NAMES}
        ), first AS (SELECT DISTINCT ON (job_id) * FROM named ORDER BY job_id, wall_ns),
        last AS (SELECT DISTINCT ON (job_id) * FROM named ORDER BY job_id, wall_ns DESC),
        moved AS (
            SELECT n.job_id, n.period, coalesce(k.wall_ns, 0) AS before, coalesce(k.productive_wall_ns, 0) AS useful,
                coalesce(k.wall_ns, 0) + n.wall_ns AS after,
                coalesce(k.productive_wall_ns, 0) + n.productive_wall_ns AS useful_after
            FROM (SELECT job_id, period, sum(wall_ns) AS wall_ns, sum(productive_wall_ns) AS productive_wall_ns
                FROM net GROUP BY job_id, period) n
            LEFT JOIN {by_job} k ON k.job_id = n.job_id AND k.{own} = n.period
        )
        SELECT period, {_NAMES}, -1 AS jobs, -{_ratio("useful", "before")} AS ratios
        FROM moved JOIN first USING (job_id) WHERE before > 0
        UNION ALL
        SELECT period, {_NAMES}, 1, {_ratio("useful_after", "after")}
        FROM moved JOIN last USING (job_id) WHERE after > 0
    """  # noqa: S608 - our own names


def fold(conn: Connection) -> None:
    """Add what `taken_deltas` change, before they are in the roll-ups by job."""
    for table, (period, _, _) in KEPT.items():
        conn.execute(
            text(
                f"INSERT INTO {table} AS w (slice, name, {period}, jobs, ratios)"  # noqa: S608
                f" SELECT s.slice, s.name, c.period, sum(c.jobs), sum(c.ratios)"
                f" FROM ({changed(table, 'taken_deltas')}) c CROSS JOIN LATERAL {_SLICES} GROUP BY 1, 2, 3"
                " HAVING sum(c.jobs) <> 0 OR sum(c.ratios) <> 0 ORDER BY c.period"
                f" ON CONFLICT (slice, {period}, name) DO UPDATE"
                " SET jobs = w.jobs + EXCLUDED.jobs, ratios = w.ratios + EXCLUDED.ratios"
            )
        )
        conn.execute(
            text(
                f"DELETE FROM {table} WHERE jobs = 0 AND {period} IN"  # noqa: S608
                f" (SELECT {KEPT[table][1]} FROM taken_deltas d WHERE d.wall_ns < 0)"
            )
        )


def backfill(conn: Connection) -> None:
    """Make them of the roll-ups by job, where there are none."""
    for table, (period, _, by_job) in KEPT.items():
        conn.execute(
            text(f"INSERT INTO {table} (slice, name, {period}, jobs, ratios) {_told(by_job, period)}")
        )
        conn.execute(text(f"ANALYZE {table}"))


def differences(conn: Connection) -> list[str]:
    """Where they, with the deltas on top, are not what the ledger comes to, in words; nothing but after a bug."""
    out = []
    for table, (period, of_row, _) in KEPT.items():
        ledger = (
            f"(SELECT job_id, {of_row} AS {period}, sum(wall_ns) AS wall_ns,"  # noqa: S608
            " coalesce(sum(wall_ns) FILTER (WHERE heading = 'productive'), 0) AS productive_wall_ns"
            " FROM ledger d GROUP BY 1, 2)"
        )
        late = (
            f"SELECT s.slice, s.name, c.period, c.jobs, c.ratios FROM ({changed(table, 'ledger_deltas')}) c"  # noqa: S608
            f" CROSS JOIN LATERAL {_SLICES}"
        )
        found = conn.execute(
            text(
                f"SELECT count(*) FROM (SELECT slice, name, {period} FROM (SELECT slice, name, {period}, jobs, ratios"  # noqa: S608
                f" FROM {table} UNION ALL {late} UNION ALL SELECT slice, name, {period}, -jobs, -ratios"
                f" FROM ({_told(ledger, period)}) t) u"
                f" GROUP BY slice, name, {period} HAVING sum(jobs) <> 0 OR sum(ratios) <> 0) AS differing"
            )
        ).scalar_one()
        if found:
            out.append(f"{table}: {found} rows differ from the ledger")
    return out


def _told(by_job: str, period: str) -> str:
    """The weights of a roll-up by job."""
    return (
        f"SELECT s.slice, s.name, k.{period}, count(*) AS jobs,"  # noqa: S608
        f" sum({_ratio('productive_wall_ns', 'wall_ns')}) AS ratios"
        f" FROM {by_job} k JOIN jobs c USING (job_id) CROSS JOIN LATERAL {_SLICES} WHERE wall_ns > 0 GROUP BY 1, 2, 3"
    )


def _ratio(part: str, whole: str) -> str:
    return f"({part}::float8 / {whole}::float8 * {FINE})::bigint"
