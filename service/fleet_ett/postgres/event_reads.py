"""Raw events for the books: all that concerns an attempt, as the core takes it, for several attempts at once.

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
    COLUMNS,
    FAULT,
    HEARTBEAT,
    NODE_BEATS,
    NODE_FAULTS,
    RARE,
    STEPS,
    UNITS,
    Row,
    event_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from sqlalchemy import Connection, TextClause

    from ett_collector.wire import Event

    Ints = NDArray[np.int64]
    Key = tuple[str, int]

_ROW = ", ".join(f"e.{name}" for name in COLUMNS).replace("e.body", "CAST(e.body AS text)")
# The attempts that are asked for: `low` and `high` bound the stamps of each.
_ASKED = (
    "unnest(CAST(:jobs AS bigint[]), CAST(:attempts AS integer[]), CAST(:lows AS bigint[]),"
    " CAST(:highs AS bigint[])) AS w (job_id, attempt_id, low, high)"
)
_WITHIN = (
    "e.job_id = w.job_id AND e.start_ns BETWEEN w.low AND w.high AND e.start_ns BETWEEN :lowest AND :highest"
)
_OWN = text(
    f"SELECT w.attempt_id, {_ROW} FROM {_ASKED} JOIN events e ON {_WITHIN}"  # noqa: S608 - our columns
    f" AND e.attempt_id = w.attempt_id WHERE type <> {STEPS} OR body IS NOT NULL"
)
_RARE = f"type IN ({', '.join(map(str, RARE))})"
_RARE_OF = text(
    f"SELECT w.attempt_id, {_ROW} FROM {_ASKED} JOIN events e ON {_WITHIN}"  # noqa: S608
    f" AND e.attempt_id = w.attempt_id WHERE {_RARE}"
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
_FAULTS_OF_JOBS = text(
    f"SELECT w.attempt_id, {_ROW} FROM {_ASKED} JOIN events e ON {_WITHIN}"  # noqa: S608
    f" AND e.attempt_id IS NULL AND type = {FAULT} AND {_RARE}"
)
# Nodes speak of themselves under ids of their own: who they are is found first, and then what they said where that is.
_FAULTS_OF_NODES = text(
    f"WITH w AS MATERIALIZED (SELECT attempt_id, low, high, source_id FROM {_ASKED}"  # noqa: S608
    " JOIN attempt_nodes n USING (job_id, attempt_id) JOIN sources s USING (node))"
    f" SELECT w.attempt_id, {_ROW} FROM w JOIN events e ON e.job_id = {NODE_FAULTS} AND e.source_id = w.source_id"
    f" AND type = {FAULT} AND e.start_ns BETWEEN w.low AND w.high AND e.start_ns BETWEEN :lowest AND :highest"
)
_LAST_BEAT = (
    f"(SELECT {_ROW} FROM events e WHERE job_id = {NODE_BEATS} AND type = {HEARTBEAT}"  # noqa: S608
    " AND e.source_id = w.source_id AND start_ns BETWEEN {} AND {} AND start_ns BETWEEN :lowest AND :highest"
    " ORDER BY seq DESC LIMIT 1)"
)
_BEATS_OF_NODES = text(
    "WITH w AS MATERIALIZED (SELECT attempt_id, low, until, high, source_id FROM"  # noqa: S608
    " unnest(CAST(:jobs AS bigint[]), CAST(:attempts AS integer[]), CAST(:lows AS bigint[]), CAST(:ends AS bigint[]),"
    " CAST(:highs AS bigint[])) AS a (job_id, attempt_id, low, until, high)"
    " JOIN attempt_nodes n USING (job_id, attempt_id) JOIN sources s USING (node))"
    " SELECT w.attempt_id, b.* FROM w CROSS JOIN LATERAL ("
    + _LAST_BEAT.format("w.low", "w.until")
    + " UNION ALL "
    + _LAST_BEAT.format("w.until + 1", "w.high")
    + ") b"
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
    "SELECT w.attempt_id, source_id, clock_offset_ns, rank, coalesce(unit, 0) AS unit, "  # noqa: S608
    + ", ".join(
        f"string_agg(int8send({column}), ''::bytea) AS {name}_packed" for name, column in _PACKED.items()
    )
    + f" FROM {_ASKED} JOIN events e ON {_WITHIN} AND e.attempt_id = w.attempt_id"
    f" WHERE type = {STEPS} AND body IS NULL GROUP BY w.attempt_id, source_id, clock_offset_ns, rank, unit"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attempt's events are: its ids and names, and the bounds of their stamps (ns).

    `since`: from where on events are read; of the types in `core.resume.ALWAYS` all are.
    """

    job_id: int
    attempt_id: int
    job: str
    attempt: str
    first: int
    last: int
    since: int = 0

    @property
    def told(self) -> dict[str, int]:
        """The parameters of a query for its own events."""
        first = max(self.first, self.since)
        return {"job_id": self.job_id, "attempt_id": self.attempt_id, "first": first, "last": self.last}


@dataclass(frozen=True, slots=True)
class Near:
    """What concerns an attempt beside what names it. Stamps ns.

    Faults in [low, high]; of each node's heartbeats the last in [beats_from, end] and in (end, beats_to].
    """

    place: Place
    low: int
    high: int
    beats_from: int
    end: int
    beats_to: int


@dataclass(slots=True)
class EventReads:
    """Reads events of several attempts at once on one connection; remembers sources meanwhile."""

    conn: Connection
    sources: dict[int, tuple[str, str]] = field(default_factory=dict)

    def first_stamp(self, place: Place) -> int | None:
        """The earliest stamp of anything that was said of an attempt."""
        found: int | None = self.conn.execute(_FIRST, place.told).scalar()
        return found

    def own(self, places: Sequence[Place]) -> dict[int, list[Event | StepBatch]]:
        """What names each attempt, by attempt id; plain step windows as columns, behind all events.

        An identity that stands anywhere twice stands in no column, so that the core can judge it.
        """
        if not places:
            return {}
        told = _asked(places, [max(one.first, one.since) for one in places], [one.last for one in places])
        found = self._events(_OWN, told, places)
        for attempt_id, events in self._rare([one for one in places if one.since > one.first]).items():
            found[attempt_id] = [*found.get(attempt_id, []), *events]
        batches = self._batches(told, places)
        out: dict[int, list[Event | StepBatch]] = {}
        for place in places:
            events = found.get(place.attempt_id, [])
            out[place.attempt_id] = [*events, *self._steps(place, batches.get(place.attempt_id, []), events)]
        return out

    def _rare(self, places: Sequence[Place]) -> dict[int, list[Event]]:
        """What is needed of the time before `since`."""
        if not places:
            return {}
        told = _asked(places, [one.first for one in places], [one.since - 1 for one in places])
        return self._events(_RARE_OF, told, places)

    def near(self, asked: Sequence[Near]) -> dict[int, list[Event]]:
        """Faults and heartbeats of each attempt's job and nodes that name no attempt, by attempt id."""
        if not asked:
            return {}
        places = [one.place for one in asked]
        told = _asked(places, [one.low for one in asked], [one.high for one in asked])
        out = self._events(_FAULTS_OF_JOBS, told, places)
        beats = {
            **{name: told[name] for name in ("jobs", "attempts")},
            "lows": [one.beats_from for one in asked],
            "ends": [one.end for one in asked],
            "highs": [one.beats_to for one in asked],
            "lowest": min(one.beats_from for one in asked),
            "highest": max(one.beats_to for one in asked),
        }
        for found in (
            self._events(_FAULTS_OF_NODES, told, places),
            self._events(_BEATS_OF_NODES, beats, places),
        ):
            for attempt_id, events in found.items():
                out.setdefault(attempt_id, []).extend(events)
        return out

    def _steps(
        self, place: Place, batches: list[StepBatch], others: Iterable[Event]
    ) -> Iterator[StepBatch | Event]:
        """The step windows of an attempt: as columns where an identity stands once, `others` included."""
        repeated = _repeated(batches, others)
        if repeated:
            ids = {source: source_id for source_id, source in self.sources.items()}
            pairs = [(ids[batch.node, batch.incarnation], batch.seq[rows]) for batch, rows in repeated]
            told = sorted({(source_id, seq) for source_id, seqs in pairs for seq in seqs.tolist()})
            sources, seqs = zip(*told, strict=True)
            rows = self.conn.execute(
                _VERSIONS, {**place.told, "sources": list(sources), "seqs": list(seqs)}
            ).all()
            yield from (self._event(Row._make(row), place) for row in rows)
        without = {id(batch): rows for batch, rows in repeated}
        for batch in batches:
            yield _without(batch, without[id(batch)]) if id(batch) in without else batch

    def _batches(self, told: dict[str, Any], places: Sequence[Place]) -> dict[int, list[StepBatch]]:
        found = self.conn.execute(_STEP_WINDOWS, told).all()
        self._learn({row.source_id for row in found})
        place_of = {one.attempt_id: one for one in places}
        out: dict[int, list[StepBatch]] = {}
        for row in found:
            node, incarnation = self.sources[row.source_id]
            columns = {name: _unpacked(getattr(row, f"{name}_packed")) for name in _PACKED}
            if (columns["seq"][1:] < columns["seq"][:-1]).any():
                order = np.argsort(columns["seq"], kind="stable")
                columns = {name: column[order] for name, column in columns.items()}
            offset = row.clock_offset_ns
            columns["start"] += offset
            columns["end"] += offset
            told_of: dict[str, Any] = {**columns, **{name: _some(columns[name]) for name in _OPTIONAL}}
            place = place_of[row.attempt_id]
            out.setdefault(row.attempt_id, []).append(
                StepBatch(
                    job=place.job,
                    attempt=place.attempt,
                    rank=row.rank,
                    node=node,
                    incarnation=incarnation,
                    clock_offset_ns=offset,
                    unit=UNITS[row.unit],
                    **told_of,
                )
            )
        return out

    def _events(
        self, query: TextClause, told: dict[str, Any], places: Sequence[Place]
    ) -> dict[int, list[Event]]:
        rows = [(row[0], Row._make(row[1:])) for row in self.conn.execute(query, told)]
        self._learn({row.source_id for _, row in rows})
        place_of = {one.attempt_id: one for one in places}
        out: dict[int, list[Event]] = {}
        for attempt_id, row in rows:
            out.setdefault(attempt_id, []).append(self._event(row, place_of[attempt_id]))
        return out

    def _event(self, row: Row, place: Place) -> Event:
        """The event of a row: one of the attempt, of its job, or of a node."""
        job = place.job if row.job_id == place.job_id else None
        attempt = None if row.attempt_id is None else place.attempt
        return event_of(row, self.sources.__getitem__, job, attempt)

    def _learn(self, source_ids: Iterable[int]) -> None:
        missing = sorted(set(source_ids) - self.sources.keys())
        if missing:
            found = self.conn.execute(_SOURCES, {"ids": missing})
            self.sources |= {row.source_id: (row.node, row.incarnation) for row in found}


def _asked(places: Sequence[Place], lows: list[int], highs: list[int]) -> dict[str, Any]:
    return {
        "jobs": [one.job_id for one in places],
        "attempts": [one.attempt_id for one in places],
        "lows": lows,
        "highs": highs,
        "lowest": min(lows),
        "highest": max(highs),
    }


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
