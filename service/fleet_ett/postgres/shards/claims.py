"""Whose jobs and nodes are, of several servers: claims are at home, what a job's own events say is with its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.postgres.claims import PostgresClaims, find_clusters
from fleet_ett.postgres.pool import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleet_ett.postgres.shards.servers import Fleet


class FleetClaims(PostgresClaims):
    """`fleet_ett.speakers.Claims` over several servers."""

    def __init__(self, fleet: Fleet, with_tokens: Callable[[], frozenset[str]]) -> None:
        super().__init__(fleet.home, with_tokens)
        self._fleet = fleet

    def find(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """See `PostgresClaims`. What is claimed needs no server but the home."""
        wanted = set(names)
        out = super().find(kind, wanted)
        if kind == "job":
            for server in self._fleet.servers:
                own = {name for name in wanted - out.keys() if self._fleet.owner(name) is server}
                if own:
                    with server.asked() as engine, transaction(engine) as conn:
                        out |= find_clusters(conn, kind, own)
        return out
