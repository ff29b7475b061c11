"""Batches stored, those that arrive at once in one transaction: events once each, and marks for what has to be booked.

Either all of a batch is durable when the call returns, or nothing of it happened and the sender keeps it. Batches
that travel together share a commit, not a fate: where one of them cannot be stored, each is stored by itself.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from time import monotonic, time_ns
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from fleet_ett.errors import Busy, Unavailable, Unstorable
from fleet_ett.ingest import MAX_REASON, Refused, Stored
from fleet_ett.postgres import counts, dimensions, events, partitions, quarantine
from fleet_ett.postgres.convoy import Convoy
from fleet_ett.postgres.gathering import Delivery, Gathered, gather
from fleet_ett.postgres.marks import add_marks
from fleet_ett.postgres.pool import on_connect, told_unavailable, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Engine

    from ett_collector.wire import Event
    from fleet_ett.ingest import Batch

TRIES = 3
# Nobody who posts waits longer than this for somebody else, or for one statement; a group still has to be divided.
ALONE = "SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '30s'"
TOGETHER = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '15s'"
DIVIDED_S = 20  # in which the members of a group that failed are begun one by one
NO_PARTITION = "23514"
RETRIED = ("40001", "40P01")  # serialization failure, deadlock
HELD_UP = ("55P03", "57014")  # lock timeout, statement timeout: perhaps for one batch only

_HORIZON = text("SELECT horizon_ns FROM retention")


class _Coming(NamedTuple):
    """A batch on its way, and when it came (ns)."""

    batch: Batch
    now: int


class _MissingDaysError(Exception):
    """Partitions have to be made first."""


class PostgresStore:
    """`fleet_ett.ingest.Store` over a pool; safe for many threads. `counts`: whether events are counted here."""

    def __init__(self, engine: Engine, *, counts: bool = True) -> None:
        self._engine = engine
        self._counts = counts
        self._days: frozenset[int] = frozenset()  # a mistake about them shows by itself
        self._forget()
        on_connect(engine, self._forget)
        self._together = Convoy(self._store_all, lambda one: len(one.batch))

    def __call__(self, batch: Batch, *, now: int) -> Stored:
        """Store a batch; see `Store`."""
        return self._together(_Coming(batch, now))

    def _forget(self) -> None:
        self._known = dimensions.Known()

    def count_rejected(self) -> None:
        """Count a body that was refused as a whole."""
        with transaction(self._engine) as conn:
            counts.count_events(conn, {"rejected": 1}, now=time_ns())

    def _store_all(self, group: Sequence[_Coming]) -> list[Stored | Exception]:
        """What became of each: in one transaction, or one by one where that fails."""
        if len(group) > 1:
            try:
                return [*self._try(group)]
            except Exception as error:  # noqa: BLE001 - whose fault it is shows when each is alone
                if isinstance(error, Unavailable) and not _may_be_ones_own(error):
                    return [_like(error) for _ in group]
        until = monotonic() + DIVIDED_S
        out: list[Stored | Exception] = []
        for one in group:
            try:
                if monotonic() > until:
                    msg = "the batch could not be stored: others held it up"
                    raise Unavailable(msg, retry_after_s=1)  # noqa: TRY301
                out += self._try([one])
            except Exception as error:  # noqa: BLE001 - the caller of this one raises it
                out.append(error)
        return out

    def _try(self, group: Sequence[_Coming]) -> list[Stored]:
        met: DBAPIError | None = None
        added: frozenset[int] = frozenset()  # for this group: another one may forget them meanwhile
        with told_unavailable(), _told_unstorable():
            for _ in range(TRIES):
                try:
                    return self._store(group, self._days | added)
                except _MissingDaysError as missing:
                    self._add_days(missing.args[0], group[0].now)
                    added |= missing.args[0]
                except DBAPIError as error:
                    # a partition was dropped since, or two transactions met: another try sees it
                    if _sqlstate(error) not in (NO_PARTITION, *RETRIED):
                        raise
                    self._days = added = frozenset()
                    met = error
            if met is not None and _sqlstate(met) == NO_PARTITION:  # and it is there: another rule is broken
                raise met
        msg = "the batch could not be stored: too much happened at once"
        raise Unavailable(msg, retry_after_s=1) from met

    def _store(self, group: Sequence[_Coming], days: frozenset[int]) -> list[Stored]:
        """Store a group in one transaction. Raises `_MissingDaysError` for partitions beyond those of `days`."""
        learned = dimensions.Known()
        with self._engine.begin() as conn:
            known = self._known  # of the server at the other end
            conn.exec_driver_sql(ALONE if len(group) == 1 else TOGETHER)
            horizon = conn.execute(_HORIZON).scalar()
            kept, late = zip(*(_within_retention(one, horizon) for one in group), strict=True)
            gathered = gather(conn, kept, known, learned)
            missing = gathered.days - days
            if missing:
                raise _MissingDaysError(missing)
            self._write(conn, gathered, known, learned, now=min(one.now for one in group))
            dimensions.see_nodes(conn, _seen(group, kept))
            total: Counter[str] = Counter()
            out = []
            for one, verdicts, old in zip(group, gathered.verdicts, late, strict=True):
                refused = [*one.batch.refused, *old]
                quarantined = quarantine.add_refused(conn, one.batch.agent, refused, now=one.now)
                repeated = verdicts["repeat"] + verdicts["duplicate"]
                total["accepted"] += verdicts["accepted"]
                total["conflict"] += verdicts["conflict"]
                total["quarantined"] += quarantined
                total["duplicate"] += repeated + len(refused) - quarantined
                accepted = verdicts["accepted"] + verdicts["conflict"]
                out.append(Stored(accepted, repeated, verdicts["conflict"], tuple(old)))
            if self._counts:
                counts.count_events(conn, total, now=max(one.now for one in group))
        known.learn(learned)
        return out

    def _write(
        self,
        conn: Connection,
        gathered: Gathered,
        known: dimensions.Known,
        learned: dimensions.Known,
        *,
        now: int,
    ) -> None:
        if gathered.rows:
            events.copy_events(conn, gathered.rows)
        if gathered.packed:
            events.copy_packed(conn, gathered.packed)
        events.add_facts(conn, gathered.facts)
        learned.nodes = gathered.nodes - known.nodes
        dimensions.add_attempt_nodes(conn, learned.nodes)
        dimensions.advance_sources(conn, gathered.last_seq)
        add_marks(conn, gathered.marks, now=now)

    def _add_days(self, days: set[int], now: int) -> None:
        with transaction(self._engine) as conn:
            conn.exec_driver_sql(ALONE)
            partitions.add_partitions(conn, days, now=now)
        self._days |= days


@contextmanager
def _told_unstorable() -> Iterator[None]:
    """Turn what the database says of the data themselves into `Unstorable`."""
    try:
        yield
    except (DataError, IntegrityError) as error:
        said = str(error.orig).partition("\n")[0].replace("\0", "\ufffd")
        msg = f"the database does not take it: {said}"
        raise Unstorable(msg[:MAX_REASON].encode(errors="replace").decode()) from error


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _may_be_ones_own(error: Unavailable) -> bool:
    """Whether the database is there, so that others of the group may be stored."""
    cause = error.__cause__
    if not isinstance(cause, DBAPIError):
        return not isinstance(error, Busy)
    return _sqlstate(cause) in (*RETRIED, *HELD_UP, NO_PARTITION)


def _like(error: Unavailable) -> Unavailable:
    """The same once more: an error is one caller's own."""
    again = type(error)(error.message, retry_after_s=error.retry_after_s)
    again.__cause__ = error.__cause__
    return again


def _seen(group: Sequence[_Coming], kept: Sequence[Delivery]) -> dict[str, dimensions.Seen]:
    """The nodes that said something, as they were heard last."""
    out: dict[str, dimensions.Seen] = {}
    for (batch, now), delivery in zip(group, kept, strict=True):
        agent = batch.agent
        if (delivery.events or delivery.blocks) and (agent.node not in out or out[agent.node].at <= now):
            out[agent.node] = dimensions.Seen(now, batch.clock_offset_ns, agent.version)
    return out


def _within_retention(one: _Coming, horizon: int | None) -> tuple[Delivery, list[Refused]]:
    """The events and blocks that are not older than what is kept, and the events that are."""
    batch, now = one
    if horizon is None:
        return Delivery(batch.events, batch.blocks, now), []
    if any(int(block.corrected("start").min()) < horizon for block in batch.blocks):
        batch = batch.singly()
    kept: list[Event] = []
    late: list[Refused] = []
    for event, position in zip(batch.events, batch.positions, strict=True):
        if event.start is not None and event.start - event.clock_offset_ns < horizon:
            reason = "lies before what the service still keeps (retention)"
            late.append(Refused(position, event.seq, reason, {"type": event.type, "start": event.start}))
        else:
            kept.append(event)
    return Delivery(kept, batch.blocks, now), late
