"""Raw events for the books: all that concerns one attempt, as the core takes it.

Step windows are what there is most of: they come as one binary COPY and become numpy columns. Everything else
is read as events. Stamps bound each question, so that only the partitions that matter are touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import text

from fleet_ett.core.steps import StepBatch
from fleet_ett.postgres.event_rows import (
    ATTEMPT_START,
    COLUMNS,
    FAULT,
    HEARTBEAT,
    NODE_BEATS,
    NODE_FAULTS,
    OTHER_UNIT,
    STEPS,
    UNITS,
    Row,
    event_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from sqlalchemy import Connection, TextClause

    from ett_collector.wire import Event

    Ints = NDArray[np.int64]
    Key = tuple[str, int]

_ROW = ", ".join(f"e.{name}" for name in COLUMNS).replace("e.body", "CAST(e.body AS text)")
_OWN = text(
    f"SELECT {_ROW} FROM events e WHERE job_id = :job_id AND attempt_id = :attempt_id"  # noqa: S608 - our columns
    f" AND type <> {STEPS} AND start_ns BETWEEN :first AND :last"
)
_STARTS = text(
    f"SELECT {_ROW} FROM events e WHERE job_id = :job_id AND attempt_id = :attempt_id"  # noqa: S608
    f" AND type = {ATTEMPT_START} AND start_ns BETWEEN :first AND :last"
)
_FIRST = text(
    "SELECT min(start_ns) FROM events WHERE job_id = :job_id AND attempt_id = :attempt_id"
    " AND start_ns BETWEEN :first AND :last"
)
_VERSIONS = text(
    f"SELECT {_ROW} FROM events e"  # noqa: S608
    " JOIN unnest(CAST(:sources AS bigint[]), CAST(:seqs AS bigint[])) AS n (source_id, seq) USING (source_id, seq)"
    f" WHERE job_id = :job_id AND attempt_id = :attempt_id AND type = {STEPS} AND start_ns BETWEEN :first AND :last"
)
_FAULTS_OF_JOB = text(
    f"SELECT {_ROW} FROM events e WHERE job_id = :job_id AND attempt_id IS NULL AND type = {FAULT}"  # noqa: S608
    " AND start_ns BETWEEN :low AND :high"
)
_FAULTS_OF_NODES = text(
    f"SELECT {_ROW} FROM events e WHERE job_id = {NODE_FAULTS} AND type = {FAULT} AND source_id IN"  # noqa: S608
    " (SELECT s.source_id FROM sources s JOIN attempt_nodes n USING (node)"
    " WHERE n.job_id = :job_id AND n.attempt_id = :attempt_id)"
    " AND start_ns BETWEEN :low AND :high"
)
_LAST_BEAT = (
    f"(SELECT {_ROW} FROM events e WHERE job_id = {NODE_BEATS} AND type = {HEARTBEAT}"  # noqa: S608
    " AND e.source_id = s.source_id AND start_ns BETWEEN {} AND {} ORDER BY seq DESC LIMIT 1)"
)
_BEATS_OF_NODES = text(
    "SELECT b.* FROM attempt_nodes n JOIN sources s USING (node) CROSS JOIN LATERAL ("  # noqa: S608
    + _LAST_BEAT.format(":low", ":end")
    + " UNION ALL "
    + _LAST_BEAT.format("CAST(:end AS bigint) + 1", ":high")
    + ") b WHERE n.job_id = :job_id AND n.attempt_id = :attempt_id"
)
_SOURCES = text("SELECT source_id, node, incarnation FROM sources WHERE source_id = ANY(:ids)")
# The columns of step windows as they are copied: all of eight bytes, none null.
_STEP_COLUMNS = (
    "source_id",
    "clock_offset_ns",
    "rank",
    "unit",
    "seq",
    "start_ns",
    "end_ns",
    "first_step",
    "last_step",
    "cursor_start",
    "cursor_end",
    "data_wait_ns",
    "per_step",
)
_GROUPED = 4  # the first so many columns are constants of a batch
_NULL = {"rank": 0, "unit": 0, "cursor_start": -1, "cursor_end": -1, "data_wait_ns": -1, "per_step": -1}
_FIELD = [("length", ">i4"), ("value", ">i8")]
_STEP_TUPLE = np.dtype([("fields", ">i2"), *((name, _FIELD) for name in _STEP_COLUMNS)])
_COPY_HEADER, _COPY_TRAILER = 19, 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attempt's events are: its ids and names, and the bounds of their stamps (ns)."""

    job_id: int
    attempt_id: int
    job: str
    attempt: str
    first: int
    last: int

    @property
    def told(self) -> dict[str, int]:
        """The parameters of a query for its own events."""
        return {"job_id": self.job_id, "attempt_id": self.attempt_id, "first": self.first, "last": self.last}


@dataclass(slots=True)
class EventReads:
    """Reads events on one connection; remembers sources meanwhile."""

    conn: Connection
    sources: dict[int, tuple[str, str]] = field(default_factory=dict)

    def starts(self, place: Place) -> list[Event]:
        """The `attempt_start` events of an attempt."""
        return self._events(_STARTS, place.told, place)

    def first_stamp(self, place: Place) -> int | None:
        """The earliest stamp of anything that was said of an attempt."""
        found: int | None = self.conn.execute(_FIRST, place.told).scalar()
        return found

    def own(self, place: Place) -> list[Event]:
        """The events of an attempt, step windows apart; heartbeats that name it among them."""
        return self._events(_OWN, place.told, place)

    def faults(self, place: Place, *, low: int, high: int) -> list[Event]:
        """Faults that name no attempt, of the attempt's job and of its nodes, in [low, high]."""
        told = {**place.told, "low": low, "high": high}
        return [*self._events(_FAULTS_OF_JOB, told, place), *self._events(_FAULTS_OF_NODES, told, None)]

    def beats(self, place: Place, *, low: int, end: int, high: int) -> list[Event]:
        """Of each of the attempt's nodes the last heartbeat in [low, end] and in (end, high] that names no job."""
        return self._events(_BEATS_OF_NODES, {**place.told, "low": low, "end": end, "high": high}, None)

    def steps(self, place: Place, others: Iterable[Event]) -> Iterator[StepBatch | Event]:
        """The step windows of an attempt: as columns where an identity stands once, `others` included."""
        table = self._step_table(place)
        if not len(table["seq"]):
            return
        self._learn(np.unique(table["source_id"]).tolist())
        repeated = self._repeated(table, others)
        if repeated.any():
            told = np.unique(np.stack((table["source_id"][repeated], table["seq"][repeated]), axis=1), axis=0)
            pairs = {"sources": told[:, 0].tolist(), "seqs": told[:, 1].tolist()}
            yield from self._events(_VERSIONS, {**place.told, **pairs}, place)
            table = {name: column[~repeated] for name, column in table.items()}
        yield from self._batches(table, place)

    def _step_table(self, place: Place) -> dict[str, Ints]:
        columns = ", ".join(
            f"CAST(coalesce({name}, {_NULL[name]}) AS bigint)" if name in _NULL else name
            for name in _STEP_COLUMNS
        )
        query = (
            f"COPY (SELECT {columns} FROM events WHERE job_id = {int(place.job_id)}"  # noqa: S608 - integers
            f" AND attempt_id = {int(place.attempt_id)} AND type = {STEPS} AND end_ns IS NOT NULL"
            f" AND start_ns BETWEEN {int(place.first)} AND {int(place.last)}) TO STDOUT (FORMAT BINARY)"
        )
        driver = self.conn.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor, cursor.copy(query) as copy:
            content = b"".join(copy)
        rows = np.frombuffer(content[_COPY_HEADER : len(content) - _COPY_TRAILER], dtype=_STEP_TUPLE)
        return {name: rows[name]["value"].astype(np.int64) for name in _STEP_COLUMNS}

    def _repeated(self, table: dict[str, Ints], others: Iterable[Event]) -> NDArray[np.bool_]:
        """The rows whose identity (incarnation, seq) stands more than once, or with one of `others` too."""
        codes = {name: code for code, name in enumerate(sorted({i for _, i in self.sources.values()}))}
        ids, where = np.unique(table["source_id"], return_inverse=True)
        incarnation = np.array([codes[self.sources[i][1]] for i in ids.tolist()], dtype=np.int64)[where]
        seq = table["seq"]
        order = np.lexsort((seq, incarnation))
        twin = np.zeros(len(seq), dtype=bool)
        same = (seq[order][1:] == seq[order][:-1]) & (incarnation[order][1:] == incarnation[order][:-1])
        twin[order[1:][same]] = True
        twin[order[:-1][same]] = True
        by_incarnation: dict[str, list[int]] = {}
        for event in others:
            if event.incarnation in codes:
                by_incarnation.setdefault(event.incarnation, []).append(event.seq)
        for name, seqs in by_incarnation.items():
            twin |= (incarnation == codes[name]) & np.isin(seq, np.array(seqs, dtype=np.int64))
        return twin

    def _batches(self, table: dict[str, Ints], place: Place) -> Iterator[StepBatch]:
        keys = [table[name] for name in _STEP_COLUMNS[:_GROUPED]]
        order = np.lexsort((table["seq"], *reversed(keys)))
        table = {name: column[order] for name, column in table.items()}
        fresh = np.zeros(len(order), dtype=bool)
        fresh[:1] = True
        for name in _STEP_COLUMNS[:_GROUPED]:
            fresh[1:] |= table[name][1:] != table[name][:-1]
        cuts = np.append(np.flatnonzero(fresh), len(order)).tolist()
        for low, high in pairwise(cuts):
            rows = {name: column[low:high] for name, column in table.items()}
            node, incarnation = self.sources[int(rows["source_id"][0])]
            offset, unit = int(rows["clock_offset_ns"][0]), int(rows["unit"][0])
            yield StepBatch(
                job=place.job,
                attempt=place.attempt,
                rank=int(rows["rank"][0]),
                node=node,
                incarnation=incarnation,
                seq=rows["seq"],
                first=rows["first_step"],
                last=rows["last_step"],
                start=rows["start_ns"] + offset,
                end=rows["end_ns"] + offset,
                clock_offset_ns=offset,
                unit="other" if unit == OTHER_UNIT else UNITS[unit],
                cursor_start=_some(rows["cursor_start"]),
                cursor_end=_some(rows["cursor_end"]),
                data_wait=_some(rows["data_wait_ns"]),
                per_optimizer_step=_some(rows["per_step"]),
            )

    def _events(
        self, query: TextClause, told: dict[str, object] | dict[str, int], place: Place | None
    ) -> list[Event]:
        rows = [Row(*row) for row in self.conn.execute(query, told)]
        self._learn({row.source_id for row in rows})
        source = self.sources.__getitem__
        if place is None:
            return [event_of(row, source, None, None) for row in rows]
        return [
            event_of(row, source, place.job, None if row.attempt_id is None else place.attempt)
            for row in rows
        ]

    def _learn(self, source_ids: Iterable[int]) -> None:
        missing = sorted(set(source_ids) - self.sources.keys())
        if missing:
            found = self.conn.execute(_SOURCES, {"ids": missing})
            self.sources |= {row.source_id: (row.node, row.incarnation) for row in found}


def _some(column: Ints) -> Ints | None:
    return column if (column >= 0).any() else None
