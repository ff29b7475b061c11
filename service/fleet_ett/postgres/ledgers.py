"""The derived rows of an attempt, replaced: only those that differ are touched.

A live attempt is booked again every few seconds, and nearly all of its rows stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.types import BigInteger, Boolean, Integer, Numeric

from fleet_ett.core.cells import cells
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


def attempt_rows(job_id: int, attempt_id: int, books: AttemptBooks) -> dict[Table, list[Cells]]:
    """The rows of an attempt's books, by table, in the order of the table's columns."""
    key = (job_id, attempt_id)
    return {
        ledger: [(*key, *_cell(one)) for one in books.cells],
        segments: [(*key, *_segment(one)) for one in books.segments.rows()],
        held_up: [(*key, one.hour, one.node, one.rank, one.wall_ns, one.gpu_ns) for one in books.held],
        work: [
            (*key, one.phase, one.work_key, one.start, one.wall_ns, one.gpu_ns, one.seen_in_job)
            for one in books.work
        ],
    }


def replace_gap(
    conn: Connection, job_id: int, attempt_id: int, gap: Segments
) -> tuple[list[Cells], list[Cells]]:
    """Make this the gap after an attempt; its other rows stay. Returns the rows of `ledger` before and after."""
    key = (job_id, attempt_id)
    after = [(*key, *_cell(one)) for one in cells(gap)]
    before: list[Cells] = []
    for table, rows in ((ledger, after), (segments, [(*key, *_segment(one)) for one in gap.rows()])):
        of_attempt = (table.c.job_id == job_id, table.c.attempt_id == attempt_id, table.c.heading == GAP)
        gone = conn.execute(table.delete().where(*of_attempt).returning(*table.columns))
        before += [tuple(row) for row in gone] if table is ledger else []
        copy_rows(conn, table, rows)
    return before, after


def replace_rows(
    conn: Connection, table: Table, job_id: int, attempt_id: int, rows: Iterable[Cells]
) -> list[Cells]:
    """Make these an attempt's rows of a derived table; returns what stood there before."""
    names = ", ".join(column.name for column in table.columns)
    # a row's place does not change while the job is locked
    query = f"SELECT CAST(ctid AS text), {names} FROM {table.name}"  # noqa: S608 - our own names
    query += " WHERE job_id = :job_id AND attempt_id = :attempt_id"
    found = conn.execute(text(query), {"job_id": job_id, "attempt_id": attempt_id}).all()
    there = {tuple(row)[1:]: row[0] for row in found}
    wanted = set(rows)
    gone = [place_of for row, place_of in there.items() if row not in wanted]
    if gone:
        query = f"DELETE FROM {table.name} WHERE ctid = ANY(CAST(:gone AS tid[]))"  # noqa: S608
        conn.execute(text(query), {"gone": gone})
    new = [row for row in wanted if row not in there]
    if new:
        copy_rows(conn, table, new)
    return list(there)


def drop_attempt(conn: Connection, job_id: int, attempt_id: int) -> None:
    """Drop all derived rows of an attempt."""
    for table in (*DERIVED, incidents):
        conn.execute(table.delete().where(table.c.job_id == job_id, table.c.attempt_id == attempt_id))


def settled_rows(rows: Iterable[Cells]) -> list[Cells]:
    """The settled ones of an attempt's segments."""
    place = list(segments.columns.keys()).index("settled")
    return [row for row in rows if row[place]]


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


def settled_sums(conn: Connection, job_id: int) -> list[tuple[str, str, str, bool, int, int]]:
    """(heading, phase, component, repeated, wall ns, GPU-ns) of everything settled of a job."""
    query = text(
        "SELECT heading, phase, component, repeated, sum(settled_wall_ns), sum(settled_gpu_ns) FROM ledger"
        " WHERE job_id = :job_id GROUP BY heading, phase, component, repeated"
    )
    found = conn.execute(query, {"job_id": job_id})
    return [(*row[:4], int(row[4]), int(row[5])) for row in found]


def copy_rows(conn: Connection, table: Table, rows: Iterable[Cells]) -> None:
    """Write rows in the order of the table's columns."""
    driver = conn.connection.driver_connection
    assert driver is not None
    columns = table.columns
    statement = f"COPY {table.name} ({', '.join(c.name for c in columns)}) FROM STDIN (FORMAT BINARY)"
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([_COPY_TYPES.get(type(column.type), "text") for column in columns])
        for row in rows:
            copy.write_row(row)


def replace_incidents(conn: Connection, job_id: int, rows: Iterable[dict[str, Any]]) -> None:
    """Make these the incidents of a job."""
    names = [column.name for column in incidents.columns]
    found = conn.execute(incidents.select().where(incidents.c.job_id == job_id)).mappings()
    there = {row["attempt_id"]: dict(row) for row in found}
    wanted = {row["attempt_id"]: {"job_id": job_id, **row} for row in rows}
    gone = [attempt_id for attempt_id, row in there.items() if wanted.get(attempt_id) != row]
    if gone:
        conn.execute(incidents.delete().where(incidents.c.job_id == job_id, incidents.c.attempt_id.in_(gone)))
    new = [
        {name: row[name] for name in names}
        for attempt_id, row in wanted.items()
        if attempt_id in gone or attempt_id not in there
    ]
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
