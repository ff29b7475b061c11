"""A batch stored on the servers that own its jobs: each commits its piece, and only then is it acknowledged.

There is no commit across servers and none is needed: where one fails the sender keeps the whole batch, and what
the others have stored already is there once however often it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.errors import Unavailable
from fleet_ett.ingest import Batch, Stored
from fleet_ett.pieces import split
from fleet_ett.postgres import quarantine
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet_ett.ingest import Refused
    from fleet_ett.postgres.shards.servers import Fleet


class FleetStore:
    """`fleet_ett.ingest.Store` over several servers; safe for many threads."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._home = PostgresStore(fleet.home)
        self._own = [PostgresStore(server.engine) for server in fleet.servers]
        # what is counted elsewhere already
        self._copies = [PostgresStore(server.engine, counts=False) for server in fleet.servers]

    def __call__(self, batch: Batch, *, now: int) -> Stored:
        """Store a batch; see `Store`. All servers are tried, so that a retry has less to do."""
        pieces = split(batch, len(self._fleet.servers))
        failures: list[Unavailable] = []
        stored = self._on_each(self._own, pieces.own, now, failures)
        self._on_each(self._copies, pieces.copies, now, failures)
        if failures:
            raise failures[0]
        late = [refused for one in stored for refused in one.refused]
        self._keep_refused(batch, late, now)
        return Stored(
            sum(one.accepted for one in stored),
            sum(one.duplicates for one in stored),
            sum(one.conflicts for one in stored),
            tuple(late),
        )

    def count_rejected(self) -> None:
        """Count a body that was refused as a whole."""
        self._home.count_rejected()

    def _on_each(
        self,
        stores: list[PostgresStore],
        pieces: Mapping[int, Batch],
        now: int,
        failures: list[Unavailable],
    ) -> list[Stored]:
        out = []
        for number, piece in sorted(pieces.items()):
            store: Callable[..., Stored] = stores[number]
            try:
                with self._fleet.servers[number].asked():
                    out.append(store(piece, now=now))
            except Unavailable as error:
                failures.append(error)
        return out

    def _keep_refused(self, batch: Batch, late: list[Refused], now: int) -> None:
        """Refused events are shown at home; the late ones were counted where they would have been stored."""
        if batch.refused:
            self._home(Batch(batch.agent, batch.clock_offset_ns, refused=batch.refused), now=now)
        if late:
            with transaction(self._fleet.home) as conn:
                quarantine.add_refused(conn, batch.agent, late, now=now)
