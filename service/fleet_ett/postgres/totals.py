"""Keeps running totals: what a job held until the end of an hour, so that a life that a window cuts is one row.

Totals stand for every hour from a job's first booked one to its last, whether anything was booked in it or not, and of
a custom heading from its first hour to the job's last. What is held before a moment is then found by the hour alone:
the row of the hour before it, or all of the job's life where that ended earlier (`job_lives.last_hour_ns`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from fleet_ett.postgres.sums import UNITS, sum_of
from fleet_ett.postgres.tables.rollups import AMOUNTS, CUSTOM, custom_totals, job_totals
from fleet_ett.reads import HOUR_NS

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

_JOBS = "SELECT DISTINCT job_id FROM taken_deltas"
_LABELS = f"job_id, hour_ns, heading, {', '.join(AMOUNTS)}"
# The ledger without what is not folded yet.
_FOLDED = (
    f"(SELECT {_LABELS} FROM ledger UNION ALL SELECT job_id, hour_ns, heading,"  # noqa: S608 - our own names
    f" {', '.join(f'-{name}' for name in AMOUNTS)} FROM ledger_deltas)"
)


@dataclass(frozen=True, slots=True)
class _Totals:
    """A table of running totals: its keys beside the hour, and of which rows it is."""

    table: Table
    keys: tuple[str, ...]
    where: str = "true"

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def amounts(self) -> list[str]:
        return [c.name for c in self.table.columns if c.name.endswith(UNITS)]

    @property
    def key(self) -> str:
        """The keys as SQL."""
        return ", ".join(self.keys)

    def same(self, one: str, other: str) -> str:
        """That two rows have the same keys."""
        return " AND ".join(f"{one}.{key} = {other}.{key}" for key in self.keys)

    def by_hour(self, source: str) -> str:
        """What rows of `source` come to by key and hour, where that is not nothing."""
        sums = [f"{sum_of(amount)} AS {amount}" for amount in self.amounts]
        held = " OR ".join(f"{sum_of(amount)} <> 0" for amount in self.amounts)
        return (
            f"SELECT {self.key}, hour_ns, {', '.join(sums)} FROM {source} d WHERE {self.where}"  # noqa: S608
            f" GROUP BY {self.key}, hour_ns HAVING {held}"
        )


_JOB = _Totals(job_totals, ("job_id",))
_CUSTOM = _Totals(custom_totals, ("job_id", "heading"), f"d.heading LIKE '{CUSTOM}%'")


def fold(conn: Connection) -> None:
    """Add `taken_deltas`, after they are in `job_lives` and `ledger_lives`."""
    conn.execute(text(_extend(_JOB, _HOURS_OF_JOBS)))
    conn.execute(text(_raise(_JOB)))
    conn.execute(text(_DROP_OF_JOBS))
    conn.execute(text(_SAY_LAST))
    conn.execute(text(_extend(_CUSTOM, _HOURS_OF_CUSTOM)))
    conn.execute(text(_raise(_CUSTOM)))
    conn.execute(text(_DROP_OF_CUSTOM))


def backfill(conn: Connection) -> None:
    """Make them of the ledger, where there are none."""
    for one in (_JOB, _CUSTOM):
        columns = f"{one.key}, hour_ns, {', '.join(one.amounts)}"
        rows = f"SELECT {columns} FROM ({_whole(one)}) t ORDER BY hour_ns"  # noqa: S608
        conn.execute(text(f"INSERT INTO {one.name} ({columns}) {rows}"))
        conn.exec_driver_sql(f"ANALYZE {one.name}")
    conn.execute(text(_SAY_ALL_LAST))


def differences(conn: Connection) -> list[str]:
    """Where they are not what the folded ledger adds up to, in words; nothing but after a bug."""
    out = []
    for one in (_JOB, _CUSTOM):
        columns = f"{one.key}, hour_ns, {', '.join(one.amounts)}"
        away = f"{one.key}, hour_ns, {', '.join(f'-{amount}' for amount in one.amounts)}"
        differ = " OR ".join(f"sum({amount}) <> 0" for amount in one.amounts)
        found = conn.execute(
            text(
                f"SELECT count(*) FROM (SELECT {one.key}, hour_ns FROM (SELECT {columns} FROM {one.name}"  # noqa: S608
                f" UNION ALL SELECT {away} FROM ({_whole(one)}) w) u GROUP BY {one.key}, hour_ns HAVING {differ}) t"
            )
        ).scalar_one()
        if found:
            out.append(f"{one.name}: {found} rows differ from the ledger")
    found = conn.execute(text(_OTHER_LAST)).scalar_one()
    if found:
        out.append(f"job_lives: {found} rows have another last hour than the ledger")
    return out


def _whole(one: _Totals) -> str:
    """All rows that there should be, from the folded ledger."""
    running = (f"sum(coalesce(h.{amount}, 0)) OVER w AS {amount}" for amount in one.amounts)
    keys = ", ".join(f"s.{key}" for key in one.keys)
    of_jobs = f"SELECT job_id, max(hour_ns) AS high FROM ({_JOB.by_hour(_FOLDED)}) j GROUP BY job_id"  # noqa: S608
    return (
        f"WITH hours AS MATERIALIZED ({one.by_hour(_FOLDED)}), lasts AS ({of_jobs})"  # noqa: S608 - our own names
        f" SELECT {keys}, s.hour_ns, {', '.join(running)} FROM"
        f" (SELECT {', '.join(f'f.{key}' for key in one.keys)}, generate_series(f.low, l.high, {HOUR_NS}) AS hour_ns"
        f" FROM (SELECT {one.key}, min(hour_ns) AS low FROM hours GROUP BY {one.key}) f JOIN lasts l USING (job_id)) s"
        f" LEFT JOIN hours h ON {one.same('h', 's')} AND h.hour_ns = s.hour_ns"
        f" WINDOW w AS (PARTITION BY {keys} ORDER BY s.hour_ns)"
    )


def _extend(one: _Totals, spans: str) -> str:
    """Rows for the hours of `spans` (keys, low, high) that have none yet, each as the row before it."""
    keys, amounts = ", ".join(f"s.{key}" for key in one.keys), ", ".join(one.amounts)
    before = ", ".join(f"coalesce(b.{amount}, 0)" for amount in one.amounts)
    there = f"EXISTS (SELECT 1 FROM {one.name} t WHERE {one.same('t', 's')} AND t.hour_ns = s."  # noqa: S608 - our own names
    return (
        f"INSERT INTO {one.name} ({one.key}, hour_ns, {amounts})"  # noqa: S608 - our own names
        f" SELECT {keys}, h.hour_ns, {before} FROM (SELECT * FROM ({spans}) s"
        f" WHERE NOT {there}high) OR (s.low IS NOT NULL AND NOT {there}low)) OFFSET 0) s"  # most have all
        f" CROSS JOIN LATERAL (SELECT min(hour_ns) AS low, max(hour_ns) AS high FROM {one.name} t"
        f" WHERE {one.same('t', 's')}) k"
        f" CROSS JOIN LATERAL (SELECT generate_series(s.low, coalesce(k.low - {HOUR_NS}, s.high), {HOUR_NS})"
        f" UNION ALL SELECT generate_series(k.high + {HOUR_NS}, s.high, {HOUR_NS})) h (hour_ns)"
        f" LEFT JOIN LATERAL (SELECT {amounts} FROM {one.name} t WHERE {one.same('t', 's')}"
        " AND t.hour_ns < h.hour_ns ORDER BY t.hour_ns DESC LIMIT 1) b ON true ORDER BY h.hour_ns"
    )


def _raise(one: _Totals) -> str:
    """Add what changed in an hour to its row and to those of all later ones."""
    keys, amounts = ", ".join(f"k.{key}" for key in one.keys), ", ".join(one.amounts)
    running = (f"sum(coalesce(c.{amount}, 0)) OVER w" for amount in one.amounts)
    raised = ", ".join(f"{amount} = r.{amount} + EXCLUDED.{amount}" for amount in one.amounts)
    return (
        f"WITH changed AS MATERIALIZED ({one.by_hour('taken_deltas')})"  # noqa: S608 - our own names
        f" INSERT INTO {one.name} AS r ({one.key}, hour_ns, {amounts})"
        f" SELECT {keys}, k.hour_ns, {', '.join(running)}"
        f" FROM (SELECT {one.key}, min(hour_ns) AS low FROM changed GROUP BY {one.key}) s"
        f" CROSS JOIN LATERAL (SELECT {one.key}, hour_ns FROM {one.name} t WHERE {one.same('t', 's')}"
        " AND t.hour_ns >= s.low OFFSET 0) k"  # through the key, whatever the planner thinks of it
        f" LEFT JOIN changed c ON {one.same('c', 'k')} AND c.hour_ns = k.hour_ns"
        f" WINDOW w AS (PARTITION BY {keys} ORDER BY k.hour_ns)"
        f" ON CONFLICT ({one.key}, hour_ns) DO UPDATE SET {raised}"
    )


_HOURS_OF_JOBS = (
    f"SELECT job_id, min(hour_ns) AS low, max(hour_ns) AS high FROM ({_JOB.by_hour('taken_deltas')}) c"  # noqa: S608
    " GROUP BY job_id"
)
_HOURS_OF_CUSTOM = (
    "SELECT c.job_id, c.heading, min(c.low) AS low, l.last_hour_ns AS high FROM ("  # noqa: S608 - our own names
    f"SELECT job_id, heading, hour_ns AS low FROM ({_CUSTOM.by_hour('taken_deltas')}) c"
    " UNION ALL SELECT g.job_id, g.heading, NULL FROM ledger_lives g"
    f" WHERE g.job_id = ANY (ARRAY({_JOBS})) AND g.heading LIKE '{CUSTOM}%') c"
    " JOIN job_lives l ON l.job_id = c.job_id GROUP BY c.job_id, c.heading, l.last_hour_ns"
)
# What may begin later, or end earlier, than it did: looked at by its first and last rows, which are as good as always
# in order.
_SHRUNK = "SELECT job_id FROM taken_deltas GROUP BY job_id, hour_ns HAVING sum(wall_ns) < 0"
_SHRUNK_CUSTOM = (
    f"SELECT job_id, heading FROM taken_deltas WHERE heading LIKE '{CUSTOM}%' GROUP BY job_id, hour_ns, heading"  # noqa: S608
    " HAVING sum(wall_ns) < 0 UNION SELECT job_id, heading FROM ledger_lives"
    f" WHERE job_id = ANY (ARRAY({_SHRUNK})) AND heading LIKE '{CUSTOM}%'"
)
_FIRST = "(SELECT t.wall_ns FROM {} t WHERE {} ORDER BY t.hour_ns LIMIT 1)"
_DROP_OF_JOBS = (
    "DELETE FROM job_totals WHERE ctid = ANY (ARRAY("  # noqa: S608 - our own names
    f"SELECT k.ctid FROM (SELECT * FROM (SELECT DISTINCT job_id FROM ({_SHRUNK}) d) s"
    f" WHERE {_FIRST.format('job_totals', _JOB.same('t', 's'))} = 0"
    " OR (SELECT count(*) = 2 AND min(wall_ns) = max(wall_ns) FROM"
    " (SELECT t.wall_ns FROM job_totals t WHERE t.job_id = s.job_id ORDER BY t.hour_ns DESC LIMIT 2) l) OFFSET 0) s"
    " CROSS JOIN LATERAL (SELECT t.ctid, t.wall_ns, lag(t.wall_ns) OVER (ORDER BY t.hour_ns) AS before,"
    " max(t.wall_ns) OVER () AS most FROM job_totals t WHERE t.job_id = s.job_id) k"
    " WHERE k.wall_ns = 0 OR k.before = k.most))"
)
_DROP_OF_CUSTOM = (
    "DELETE FROM custom_totals WHERE ctid = ANY (ARRAY("  # noqa: S608 - our own names
    "SELECT k.ctid FROM (SELECT s.*, coalesce(l.last_hour_ns, 0) AS last_ns FROM"
    f" ({_SHRUNK_CUSTOM}) s LEFT JOIN job_lives l ON l.job_id = s.job_id"
    f" WHERE {_FIRST.format('custom_totals', _CUSTOM.same('t', 's'))} = 0 OR coalesce(l.last_hour_ns, 0) <"
    f" (SELECT max(t.hour_ns) FROM custom_totals t WHERE {_CUSTOM.same('t', 's')}) OFFSET 0) s"
    " CROSS JOIN LATERAL (SELECT t.ctid, t.wall_ns, t.hour_ns FROM custom_totals t"
    f" WHERE {_CUSTOM.same('t', 's')} OFFSET 0) k WHERE k.wall_ns = 0 OR k.hour_ns > s.last_ns))"
)
_LAST = "(SELECT max(t.hour_ns) FROM job_totals t WHERE t.job_id = l.job_id)"
_SAY_LAST = (
    f"UPDATE job_lives l SET last_hour_ns = {_LAST} WHERE l.job_id = ANY (ARRAY("  # noqa: S608 - our own names
    f"SELECT l.job_id FROM ({_JOBS}) c CROSS JOIN LATERAL (SELECT * FROM job_lives l WHERE l.job_id = c.job_id"
    f" OFFSET 0) l WHERE l.last_hour_ns <> {_LAST}))"
)
_SAY_ALL_LAST = (
    "UPDATE job_lives l SET last_hour_ns = m.high FROM"
    " (SELECT job_id, max(hour_ns) AS high FROM job_totals GROUP BY job_id) m WHERE m.job_id = l.job_id"
)
_OTHER_LAST = (
    "SELECT count(*) FROM job_lives l LEFT JOIN (SELECT job_id, max(hour_ns) AS high FROM job_totals"
    " GROUP BY job_id) m USING (job_id) WHERE l.last_hour_ns IS DISTINCT FROM m.high"
)
