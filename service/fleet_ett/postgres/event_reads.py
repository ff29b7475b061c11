"""Raw events for the books: all that concerns one attempt, as the core takes it.

Step windows are what there is most of: they come packed by column and become numpy arrays. Everything else, and
windows that say something unusual, is read as events. Stamps bound each question, so that only the partitions
that matter are touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

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
    f" AND (type <> {STEPS} OR body IS NOT NULL) AND start_ns BETWEEN :first AND :last"
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
    f" WHERE job_id = :job_id AND attempt_id = :attempt_id AND type = {STEPS} AND body IS NULL"
    " AND start_ns BETWEEN :first AND :last"
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
# Step windows without anything unusual, by what is constant in a batch, each column packed into one value:
# big-endian, eight bytes a window. All columns of a group take its rows in the same order.
_PACKED = {
    "seq": "seq",
    "start": "start_ns",
    "end": "end_ns",
    "first": "first_step",
    "last": "last_step",
    "cursor_start": "coalesce(cursor_start, -1)",
    "cursor_end": "coalesce(cursor_end, -1)",
    "data_wait": "coalesce(data_wait_ns, -1)",
    "per_optimizer_step": "coalesce(per_step, -1)",
}
_OPTIONAL = ("cursor_start", "cursor_end", "data_wait", "per_optimizer_step")
_STEP_WINDOWS = text(
    "SELECT source_id, clock_offset_ns, rank, coalesce(unit, 0) AS unit, "  # noqa: S608
    + ", ".join(
        f"string_agg(int8send({column}), ''::bytea) AS {name}_packed" for name, column in _PACKED.items()
    )
    + f" FROM events WHERE job_id = :job_id AND attempt_id = :attempt_id AND type = {STEPS} AND body IS NULL"
    " AND start_ns BETWEEN :first AND :last GROUP BY source_id, clock_offset_ns, rank, unit"
)


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
        """The events of an attempt but plain step windows; heartbeats that name it among them."""
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
        batches = self._batches(place)
        repeated = _repeated(batches, others)
        if repeated:
            ids = {source: source_id for source_id, source in self.sources.items()}
            pairs = [(ids[batch.node, batch.incarnation], batch.seq[rows]) for batch, rows in repeated]
            told = sorted({(source_id, seq) for source_id, seqs in pairs for seq in seqs.tolist()})
            sources, seqs = zip(*told, strict=True)
            yield from self._events(
                _VERSIONS, {**place.told, "sources": list(sources), "seqs": list(seqs)}, place
            )
        without = {id(batch): rows for batch, rows in repeated}
        for batch in batches:
            yield _without(batch, without[id(batch)]) if id(batch) in without else batch

    def _batches(self, place: Place) -> list[StepBatch]:
        found = self.conn.execute(_STEP_WINDOWS, place.told).all()
        self._learn({row.source_id for row in found})
        out = []
        for row in found:
            node, incarnation = self.sources[row.source_id]
            columns = {name: _unpacked(getattr(row, f"{name}_packed")) for name in _PACKED}
            if (columns["seq"][1:] < columns["seq"][:-1]).any():
                order = np.argsort(columns["seq"], kind="stable")
                columns = {name: column[order] for name, column in columns.items()}
            offset = row.clock_offset_ns
            columns["start"] += offset
            columns["end"] += offset
            told: dict[str, Any] = {**columns, **{name: _some(columns[name]) for name in _OPTIONAL}}
            out.append(
                StepBatch(
                    job=place.job,
                    attempt=place.attempt,
                    rank=row.rank,
                    node=node,
                    incarnation=incarnation,
                    clock_offset_ns=offset,
                    unit=UNITS[row.unit],
                    **told,
                )
            )
        return out

    def _events(
        self, query: TextClause, told: dict[str, object] | dict[str, int], place: Place | None
    ) -> list[Event]:
        rows = [Row._make(row) for row in self.conn.execute(query, told).all()]
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


def _repeated(batches: list[StepBatch], others: Iterable[Event]) -> list[tuple[StepBatch, NDArray[np.bool_]]]:
    """The batches in which an identity stands that is anywhere twice, and their rows of that kind."""
    by_incarnation: dict[str, list[StepBatch]] = {}
    for batch in batches:
        by_incarnation.setdefault(batch.incarnation, []).append(batch)
    single: dict[str, list[int]] = {}
    for event in others:
        if event.incarnation in by_incarnation:
            single.setdefault(event.incarnation, []).append(event.seq)
    out = []
    for incarnation, several in by_incarnation.items():
        seqs = [*(batch.seq for batch in several), np.array(single.get(incarnation, []), dtype=np.int64)]
        distinct, counts = np.unique(np.concatenate(seqs), return_counts=True)
        twice = distinct[counts > 1]
        if len(twice):
            marked = [(batch, np.isin(batch.seq, twice)) for batch in several]
            out += [(batch, rows) for batch, rows in marked if rows.any()]
    return out


def _without(batch: StepBatch, rows: NDArray[np.bool_]) -> StepBatch:
    """A batch without those rows."""
    kept: dict[str, Any] = {}
    for name in _PACKED:
        column = getattr(batch, name)
        kept[name] = None if column is None else column[~rows]
    return replace(batch, **kept)


def _unpacked(packed: bytes) -> Ints:
    return np.frombuffer(packed, dtype=">i8").astype(np.int64)


def _some(column: Ints) -> Ints | None:
    return column if (column >= 0).any() else None
