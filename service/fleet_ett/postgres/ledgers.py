"""The derived rows of attempts, replaced: only those that differ are touched.

A live attempt is booked again every few seconds, and nearly all of its rows stay as they are. What changes of many
attempts is gathered and written at once, amounts in place, so that no index has to be touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.types import BigInteger, Boolean, Integer, Numeric

from fleet_ett.core.cells import cells
from fleet_ett.postgres.arrays import rows_of, same, told, update
from fleet_ett.postgres.pool import driver_errors
from fleet_ett.postgres.tables import held_up, incidents, ledger, segments, work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table

    from fleet_ett.core.attempt import AttemptBooks
    from fleet_ett.core.cells import Cell
    from fleet_ett.core.segments import Segment, Segments

    Cells = tuple[Any, ...]

DERIVED = (ledger, segments, held_up, work)
GAP = "gap"
_COPY_TYPES = {BigInteger: "int8", Integer: "int4", Boolean: "bool", Numeric: "numeric"}
# The columns that say which row it is: the first of them in each table, but for segments.
_KEYS = {ledger: 7, segments: 3, held_up: 7, work: 4}
_HOUR_OF = "t.hour_ns >= n.since - n.since % 3600000000000"
_SINCE = {ledger: _HOUR_OF, held_up: _HOUR_OF, segments: "t.start_ns >= n.since"}
_SETTLED = text(
    "SELECT heading, phase, component, repeated, sum(settled_wall_ns), sum(settled_gpu_ns) FROM ledger"
    " WHERE job_id = :job_id GROUP BY heading, phase, component, repeated"
)
_INCIDENTS = text(
    "SELECT i.* FROM incidents i JOIN attempts a USING (job_id, attempt_id)"
    " WHERE a.job_id = ANY(:jobs) AND NOT a.folded"
)
LABEL, AMOUNTS = slice(3, 7), slice(7, 11)  # of rows of the ledger


def attempt_rows(
    job_id: int, attempt_id: int, books: AttemptBooks, *, since: int = 0
) -> dict[Table, list[Cells]]:
    """The rows of an attempt's books, by table, in the order of the table's columns.

    Segments that ended at `since` (ns) or before are past their retention.
    """
    key = (job_id, attempt_id)
    return {
        ledger: [(*key, *_cell(one)) for one in books.cells],
        segments: [(*key, *_segment(one)) for one in books.segments.rows() if one.end > since],
        held_up: [
            (*key, one.hour, one.node, one.rank, one.phase, one.component, one.wall_ns, one.gpu_ns)
            for one in books.held
        ],
        work: [
            (*key, one.phase, one.work_key, one.start, one.wall_ns, one.gpu_ns, one.seen_in_job)
            for one in books.work
        ],
    }


def gap_rows(job_id: int, attempt_id: int, gap: Segments, *, since: int = 0) -> dict[Table, list[Cells]]:
    """The rows of the gap after an attempt; see `attempt_rows`."""
    key = (job_id, attempt_id)
    return {
        ledger: [(*key, *_cell(one)) for one in cells(gap)],
        segments: [(*key, *_segment(one)) for one in gap.rows() if one.end > since],
    }


@dataclass(slots=True)
class Changes:
    """What changes in the derived tables: rows that go, rows with other amounts, and new ones, by table.

    `cells`, `works`: rows of the ledger, and of work, that are not as before, [(before or None, after or None)].
    """

    gone: dict[Table, list[Cells]] = field(default_factory=dict)
    other: dict[Table, list[Cells]] = field(default_factory=dict)
    new: dict[Table, list[Cells]] = field(default_factory=dict)
    cells: list[tuple[Cells | None, Cells | None]] = field(default_factory=list)
    works: list[tuple[Cells | None, Cells | None]] = field(default_factory=list)

    def replace(self, table: Table, before: Iterable[Cells], after: Iterable[Cells]) -> None:
        """These rows instead of those. Rows are in the order of the table's columns."""
        size = _KEYS[table]
        there = {row[:size]: row for row in before}
        noted = self.cells if table is ledger else self.works if table is work else None
        for row in after:
            old = there.pop(row[:size], None)
            if old == row:
                continue
            if old is None:
                self.new.setdefault(table, []).append(row)
            else:
                self.other.setdefault(table, []).append(row)
            if noted is not None:
                noted.append((old, row))
        if there:
            self.gone.setdefault(table, []).extend(there.values())
            if noted is not None:
                noted += [(old, None) for old in there.values()]

    def add(self, more: Changes) -> None:
        """Those changes, too: of other attempts."""
        for mine, theirs in ((self.gone, more.gone), (self.other, more.other), (self.new, more.new)):
            for table, rows in theirs.items():
                mine.setdefault(table, []).extend(rows)
        self.cells += more.cells
        self.works += more.works

    def write(self, conn: Connection) -> None:
        """Write them all."""
        for table in DERIVED:
            names = list(table.columns.keys())
            keys = names[: _KEYS[table]]
            if rows := self.gone.get(table):
                query = f"DELETE FROM {table.name} t USING {rows_of(table, keys)} WHERE {same(keys)}"  # noqa: S608
                conn.execute(text(query), told(keys, rows))
            if rows := self.other.get(table):
                conn.execute(text(update(table, keys, names[len(keys) :])), told(names, rows))
            if rows := self.new.get(table):
                copy_rows(conn, table, rows)


def read_rows(
    conn: Connection, table: Table, attempts: Iterable[tuple[int, int, int]], *, gap_only: bool = False
) -> dict[int, list[Cells]]:
    """The rows of a derived table of attempts (job id, attempt id, since when in ns), by attempt id.

    Segments that start from then on, cells and held of that hour and later ones; all of `work`.
    """
    out: dict[int, list[Cells]] = {}
    names = ", ".join(f"t.{column.name}" for column in table.columns)
    query = (
        f"SELECT {names} FROM unnest(CAST(:jobs AS bigint[]), CAST(:attempts AS integer[]),"  # noqa: S608 - our names
        f" CAST(:since AS bigint[])) AS n (job_id, attempt_id, since) JOIN {table.name} t USING (job_id, attempt_id)"
        f" WHERE {_SINCE.get(table, 'true')}" + (f" AND t.heading = '{GAP}'" if gap_only else "")
    )
    for row in conn.execute(text(query), told(("jobs", "attempts", "since"), attempts)):
        out.setdefault(row[1], []).append(tuple(row))
    return out


def settled_rows(rows: Iterable[Cells], *, since: int = 0) -> list[Cells]:
    """The settled ones of an attempt's segments that ended after `since` (ns)."""
    names = list(segments.columns.keys())
    settled, end = names.index("settled"), names.index("end_ns")
    return [row for row in rows if row[settled] and row[end] > since]


def changed_ns(old: Sequence[Cells], new: Iterable[Cells]) -> int:
    """How much of the time (ns) that was settled is booked otherwise now; rows are segments."""
    if not old:
        return 0
    names = list(segments.columns.keys())
    start, end, heading = (names.index(name) for name in ("start_ns", "end_ns", "heading"))
    label = slice(heading, heading + 3)
    until = max(row[end] for row in old)
    moved: dict[Cells, int] = {}
    for sign, rows in ((-1, old), (1, new)):
        for row in rows:
            length = min(row[end], until) - row[start]
            if length > 0:
                moved[row[label]] = moved.get(row[label], 0) + sign * length
    gained = sum(amount for amount in moved.values() if amount > 0)
    lost = -sum(amount for amount in moved.values() if amount < 0)
    return max(gained, lost)


def settled_sums(conn: Connection, job_id: int) -> dict[Cells, list[int]]:
    """[wall ns, GPU-ns] of everything settled of a job by (heading, phase, component, repeated)."""
    found = conn.execute(_SETTLED, {"job_id": job_id})
    return {tuple(row[:4]): [int(row[4]), int(row[5])] for row in found}


def add_settled(
    sums: dict[Cells, list[int]], changed: Iterable[tuple[Cells | None, Cells | None]]
) -> dict[Cells, list[int]]:
    """The settled sums of a job after rows of its ledger changed (`Changes.cells`)."""
    out = {label: list(amounts) for label, amounts in sums.items()}
    for pair in changed:
        for sign, row in zip((-1, 1), pair, strict=True):
            if row is not None:
                amounts = out.setdefault(row[LABEL], [0, 0])
                amounts[0] += sign * row[AMOUNTS][2]
                amounts[1] += sign * row[AMOUNTS][3]
    return {label: amounts for label, amounts in out.items() if any(amounts)}


def copy_rows(conn: Connection, table: Table, rows: Iterable[Cells]) -> None:
    """Write rows in the order of the table's columns."""
    driver = conn.connection.driver_connection
    assert driver is not None
    columns = table.columns
    statement = f"COPY {table.name} ({', '.join(c.name for c in columns)}) FROM STDIN (FORMAT BINARY)"
    with driver_errors(), driver.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([_COPY_TYPES.get(type(column.type), "text") for column in columns])
        for row in rows:
            copy.write_row(row)


def read_incidents(conn: Connection, job_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """The incidents of jobs by job id, without those of folded attempts."""
    out: dict[int, list[dict[str, Any]]] = {}
    for row in conn.execute(_INCIDENTS, {"jobs": list(job_ids)}).mappings():
        out.setdefault(row["job_id"], []).append(dict(row))
    return out


def replace_incidents(
    conn: Connection, before: Iterable[dict[str, Any]], after: Iterable[dict[str, Any]]
) -> None:
    """These incidents instead of those, of any jobs."""
    key = ("job_id", "attempt_id")
    there = {(row["job_id"], row["attempt_id"]): row for row in before}
    wanted = {(row["job_id"], row["attempt_id"]): row for row in after}
    gone = [place for place, row in there.items() if wanted.get(place) != row]
    if gone:
        query = f"DELETE FROM incidents t USING {rows_of(incidents, key)} WHERE {same(key)}"  # noqa: S608
        conn.execute(text(query), told(key, gone))
    new = [row for place, row in wanted.items() if there.get(place) != row]
    if new:
        conn.execute(incidents.insert(), new)


def _cell(one: Cell) -> Cells:
    return (
        one.hour,
        one.heading,
        one.phase,
        one.component,
        one.repeated,
        one.wall_ns,
        one.gpu_ns,
        one.settled_wall_ns,
        one.settled_gpu_ns,
    )


def _segment(one: Segment) -> Cells:
    return (
        one.start,
        one.end,
        one.heading,
        one.phase,
        one.component,
        one.rank,
        one.node,
        one.repeated,
        one.gpus,
        one.settled,
    )
