"""The audit log: what was done to tokens and claims, and who tried what they may not; bounded.

Refusals are cut short by sender and forgotten after a while; what administrators did outlives any flood of them.
"""

from __future__ import annotations

import logging
from threading import Lock
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, text

from fleet_ett.errors import EttError
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.tables import audit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Engine, Row

log = logging.getLogger(__name__)

EVERY_S = 60.0  # in this time the same refusal is noted once, and of one sender
MOST_OF_ONE = 20  # different ones
MOST_SENDERS = 10_000
MAX_REFUSALS = 50_000
MAX_REFUSAL_NS = 90 * 86_400_000_000_000
MAX_ACTS = 100_000
REFUSED = "refused: "  # how a refusal begins

_PRUNE_REFUSALS = text(
    "DELETE FROM audit WHERE what LIKE 'refused: %' AND (at_ns < :oldest OR id <= (SELECT id FROM audit"
    " WHERE what LIKE 'refused: %' ORDER BY id DESC OFFSET :most LIMIT 1))"
)
_PRUNE_ACTS = text(
    "DELETE FROM audit WHERE what NOT LIKE 'refused: %' AND id <= (SELECT id FROM audit"
    " WHERE what NOT LIKE 'refused: %' ORDER BY id DESC OFFSET :most LIMIT 1)"
)


class AuditLog:
    """`fleet_ett.access.Note` over a pool; safe for many threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()
        self._noted: dict[str, tuple[float, set[tuple[str, ...]]]] = {}

    def __call__(self, who: str, what: str, detail: Mapping[str, str]) -> None:
        """See `Note`."""
        if not self._is_new(who, (what, *sorted(detail.values()))):
            return
        try:
            with transaction(self._engine) as conn:
                add_audit(conn, who, what, detail)
        except EttError as error:
            log.warning("not in the audit log: %s %s: %s", who, what, error.message)

    def _is_new(self, who: str, told: tuple[str, ...]) -> bool:
        with self._lock:
            since, seen = self._noted.get(who, (-EVERY_S, set()))
            if monotonic() - since >= EVERY_S:
                if len(self._noted) >= MOST_SENDERS:
                    self._noted = {}
                since, seen = monotonic(), set()
                self._noted[who] = (since, seen)
            if told in seen or len(seen) >= MOST_OF_ONE:
                return False
            seen.add(told)
            return True


def add_audit(conn: Connection, who: str, what: str, detail: Mapping[str, object]) -> None:
    """Note who did what, now."""
    conn.execute(insert(audit).values(at_ns=time_ns(), who=who, what=what, detail=dict(detail)))


def list_audit(conn: Connection, most: int) -> Sequence[Row[Any]]:
    """The newest entries, the newest first."""
    return conn.execute(select(audit).order_by(audit.c.id.desc()).limit(most)).all()


def prune_audit(conn: Connection, *, now: int) -> None:
    """Forget old refusals, and the oldest entries where there are too many."""
    conn.execute(_PRUNE_REFUSALS, {"oldest": now - MAX_REFUSAL_NS, "most": MAX_REFUSALS})
    conn.execute(_PRUNE_ACTS, {"most": MAX_ACTS})
