"""The agent put together: its parts, its cycle, other settings while it runs, and its end."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ett_collector.agent.deadletter import DeadLetters
from ett_collector.agent.metrics import families, render
from ett_collector.agent.node import Node
from ett_collector.agent.offset import ClockOffset
from ett_collector.agent.ship import Shipper
from ett_collector.agent.sources.running import Sources
from ett_collector.agent.sources.source import Surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ett_collector.agent.config import AgentConfig
    from ett_collector.agent.outbox import Outbox
    from ett_collector.agent.page import Page

STUCK_S = 60.0
LOOKS = ("sources", "kmsg", "fabric_log", "dcgm_url")  # settings that the sources are made of

log = logging.getLogger("ett-agent")


class Agent:
    """One agent over its outbox, from `start` to `stop`."""

    def __init__(self, config: AgentConfig, outbox: Outbox) -> None:
        self.config = config
        self.outbox = outbox
        self.offset = ClockOffset()
        self.dead = DeadLetters(config.state_dir)
        self.shipper = Shipper(config, outbox, self.offset, self.dead)
        self.sources = sources_of(config, outbox.state.get("sources", {}))
        self.node = Node(config, outbox, self.offset, self.dead, self.shipper.wake.set, self.sources)
        self._page: Page | None = None
        self._cycled_at = time.monotonic()

    def start(self) -> None:
        """Begin to look, to send and to serve the page."""
        self.sources.start()
        self.shipper.start()
        self._serve()

    def cycle(self) -> bool:
        """One look at the node; whether there is more to read at once."""
        more = self.node.cycle()
        self._cycled_at = time.monotonic()
        return more

    def stop(self) -> None:
        """Read and send what is left, for as long as the settings allow."""
        self.sources.stop()
        while self.node.cycle():
            pass
        self.node.cycle(last=True)
        self.shipper.stop(self.config.drain_s)
        if self._page is not None:
            self._page.close()
        log.info(
            "ended: %d events sent, %d wait in %s",
            self.shipper.sent,
            self.outbox.backlog,
            self.config.state_dir,
        )

    def reload(self, new: AgentConfig) -> None:
        """Go on with other settings; those that need a restart are named and stay."""
        old = self.config
        for name in old.needs_restart(new):
            log.warning("reload: %s stays %r until a restart", name, getattr(old, name))
        self.config = new = new.keeping(old)
        logging.getLogger().setLevel(logging.DEBUG if new.verbose else logging.INFO)
        self.outbox.limit_bytes = new.outbox_bytes
        self.shipper.reload(new)
        self.node.reload(new)
        if any(getattr(old, name) != getattr(new, name) for name in LOOKS):
            self.sources.stop()
            self.node.findings.take(self.node.trainers.clock.now())
            self.sources = sources_of(new, self.node.findings.cursors)  # what is on its way is found again
            self.node.findings.sources = self.sources
            self.sources.start()
        if old.metrics != new.metrics:
            self._serve()
        log.info("reloaded: %s -> %s", new.spool_dir, new.url)

    def wrong(self) -> str:
        """What is wrong with this process, empty where nothing is. A service that is away is nothing wrong here."""
        if not self.shipper.is_running:
            return "nothing is sent: the shipper has ended"
        idle = time.monotonic() - self._cycled_at
        return f"the spools were not looked at for {idle:.0f} s" if idle > STUCK_S else ""

    def _serve(self) -> None:
        """Serve the page where it should be. An address that is taken costs the page, not the agent."""
        if self._page is not None:
            self._page.close()
            self._page = None
        if self.config.metrics is None:
            return
        from ett_collector.agent.page import Page  # noqa: PLC0415 - a megabyte for those who ask for it

        try:
            self._page = Page(self.config.metrics, lambda: render(families(self)), self.wrong)
        except OSError as error:
            log.warning("no /metrics on %s port %d: %s", *self.config.metrics, error)
        else:
            log.info("metrics on %s port %d", *self._page.address)


def sources_of(config: AgentConfig, cursors: Mapping[str, dict[str, Any]]) -> Sources:
    """The sources that the settings name."""
    around = Surroundings(config.procfs, config.sysfs, config.kmsg, config.fabric_log, config.dcgm_url)
    return Sources(config.sources, around, cursors)
