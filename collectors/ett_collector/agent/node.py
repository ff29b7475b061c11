"""The agent's cycle: look at the spools and processes of the node, and commit what they say as events."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from ett_collector.agent.findings import Findings
from ett_collector.agent.outbox import Full
from ett_collector.agent.pending import Pending
from ett_collector.agent.trainers import Trainers
from ett_collector.wire import Rejected, decode_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from ett_collector.agent.config import AgentConfig
    from ett_collector.agent.deadletter import DeadLetters
    from ett_collector.agent.offset import ClockOffset
    from ett_collector.agent.outbox import Outbox
    from ett_collector.agent.sources.running import Sources

COMPLAIN_S = 60.0

log = logging.getLogger("ett-agent")


class Node:
    """All that one agent knows of its node. `cycle` reads, books and commits once."""

    def __init__(
        self,
        config: AgentConfig,
        outbox: Outbox,
        offset: ClockOffset,
        dead: DeadLetters,
        committed: Callable[[], object],
        sources: Sources,
    ) -> None:
        self._config = config
        self._committed = committed
        self._outbox = outbox
        self._offset = offset
        self._dead = dead
        self._pending = Pending()
        self.trainers = Trainers(config, outbox.state, self._pending)
        self.findings = Findings(config.node, sources, self.trainers, self._pending)
        self._alive_at = int(outbox.state.get("agent", {}).get("alive_at", 0))
        agent, clock = outbox.state.get("agent", {}), self.trainers.clock
        same = agent.get("clock") == clock.to_json()
        offset.resume(agent.get("offset", {}) if same else {}, clock.anchor)
        self._beat_at = 0.0
        self._complain_at = 0.0

    def cycle(self, *, last: bool = False) -> bool:
        """One look at everything; whether there is more to read at once. `last`: the agent ends after it."""
        if self._pending.events and not self._commit():
            return False  # the disk takes nothing: the spools keep the rest
        more = self.trainers.visit()
        now = self.trainers.clock.now()
        self.findings.take(now)
        beat = last or (time.monotonic() >= self._beat_at and not more)
        self.trainers.tell(now, all_windows=beat)
        if beat:
            self._heartbeat(now)
        if self._pending.events or self._pending.changed:
            self._commit()
        if self._pending.is_settled:
            self.trainers.clear()
        return more

    def reload(self, config: AgentConfig) -> None:
        """Go on with other settings."""
        self._config = self.trainers.config = config

    def _heartbeat(self, now: int) -> None:
        self._beat_at = time.monotonic() + self._config.heartbeat_ns / 1e9
        self._alive_at = now
        self._pending.events.append({"type": "heartbeat", "ts": now, "jobs": self.trainers.alive()})

    def _commit(self) -> bool:
        self._pending.events = [event for event in self._pending.events if self._is_sound(event)]
        agent = {
            "alive_at": self._alive_at,
            "clock": self.trainers.clock.to_json(),
            "offset": self._offset.to_json(),
        }
        changes = {**self.trainers.changes(), "agent": agent, "sources": dict(self._pending.cursors)}
        try:
            self._outbox.commit(self._pending.events, changes, self._offset.value)
        except (Full, OSError) as error:
            self._say("outbox: %s; nothing is read on until it can be kept", error)
            return False
        self._pending.clear()
        self._committed()
        return True

    def _is_sound(self, event: dict[str, Any]) -> bool:
        try:
            decode_event({"seq": 0, **event}, node=self._config.node, incarnation=self._outbox.incarnation)
        except Rejected as error:
            self._dead.put(event, self._outbox.incarnation, str(error), time.time_ns())
            self._say("not sent: %s event: %s", event.get("type"), error)
            return False
        return True

    def _say(self, text: str, *values: object) -> None:
        """Say what may go on for long, but not in every cycle."""
        if time.monotonic() >= self._complain_at:
            self._complain_at = time.monotonic() + COMPLAIN_S
            log.warning(text, *values)
