"""How long a connection may take to say what it wants: whoever trickles a request's head is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

REST_S = 30  # for what is left of a body whose sender was answered before its end: else the answer is lost
HEAD_S = 10  # from the first byte (of a new connection: from its beginning) to the end of the head


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for the end of a head for ever.

    Pure Python whatever is installed: what an installation happens to have beside us changes no behaviour.
    """

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on while the head is not whole."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._wait_no_more()
        elif self._end is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        has_more = self.conn.their_state is h11.SEND_BODY
        self._end = self.loop.call_later(REST_S if has_more else HEAD_S, self._cut)

    def _wait_no_more(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _cut(self) -> None:
        self._end = None
        if not self.transport.is_closing():
            self.transport.close()
