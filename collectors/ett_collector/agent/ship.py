"""From the outbox to the service, in a thread of its own: at least once, backing off, giving nothing up.

An event leaves the outbox only after the 200 that names it taken or quarantined. What a service refuses for
ever (quarantined, or a body that it cannot read even alone) goes to the dead letters, so that nothing behind
it waits.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ett_collector.agent.batches import GZIP, Body, body
from ett_collector.agent.config import read_token
from ett_collector.agent.post import Answer, opener_for, post
from ett_collector.coding import CODING

if TYPE_CHECKING:
    from ett_collector.agent.batches import Item
    from ett_collector.agent.config import AgentConfig
    from ett_collector.agent.deadletter import DeadLetters
    from ett_collector.agent.offset import ClockOffset
    from ett_collector.agent.outbox import Outbox, Outgoing

VERSION = "0.1.0"
BATCH = 4000  # events
FIRST_WAIT_S, LONGEST_WAIT_S, LONGEST_ASKED_S = 0.5, 60.0, 900.0
FIRST_TRIPS = 4  # round trips before the first estimate is used
MEASURE_S = 60.0  # between round trips that only measure the clock
_NOT_SPOKEN = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
_TOO_MUCH = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)

log = logging.getLogger("ett-agent")


class Shipper:
    """Sends until `stop`. `wake` is set when something was committed."""

    def __init__(self, config: AgentConfig, outbox: Outbox, offset: ClockOffset, dead: DeadLetters) -> None:
        self.wake = threading.Event()
        self.sent = 0
        self.retried = 0
        self.reached_at: float | None = None  # wall s of the last answer that was none of an error
        self._new = self._config = config
        self._outbox = outbox
        self._offset = offset
        self._dead = dead
        self._stop = threading.Event()
        self._interrupt = threading.Event()  # ends a back-off
        self._give_up_at = float("inf")
        self._opener = opener_for(config.url, config.ca)
        self._token = config.token
        self._limit = BATCH
        self._coding = CODING  # what every service understands is GZIP
        self._failures = 0
        self._measure_at = 0.0
        self._thread = threading.Thread(target=self._run, name="ett-shipper", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self, drain_s: float) -> None:
        """Send what is left for at most `drain_s` seconds, then end; the rest stays in the outbox."""
        self._give_up_at = time.monotonic() + drain_s
        self._stop.set()
        self._interrupt.set()
        self.wake.set()
        self._thread.join(drain_s + self._config.timeout_s)

    @property
    def is_running(self) -> bool:
        """Whether it still sends."""
        return self._thread.is_alive()

    def reload(self, config: AgentConfig) -> None:
        """Go on with other settings from the next request on, at once."""
        self._new = config
        self._interrupt.set()
        self.wake.set()

    def _run(self) -> None:
        while not self._done():
            try:
                self._renew()
                pause = self._turn()
            except OSError as error:  # the disk of the outbox
                log.warning("outbox: %s", error)
                pause = FIRST_WAIT_S
            except Exception:  # an answer that nobody foresaw must not end the shipping for ever
                log.exception("shipping failed")
                self._failures += 1
                pause = LONGEST_WAIT_S
            if pause is None:
                continue
            if not self._failures:
                self.wake.wait(pause)
                self.wake.clear()
            elif self._stop.is_set():
                time.sleep(min(pause, max(0.0, self._give_up_at - time.monotonic())))
            elif self._interrupt.wait(pause):  # news do not shorten a back-off
                self._interrupt.clear()

    def _renew(self) -> None:
        if self._new is self._config:
            return
        self._interrupt.clear()
        config = self._new
        self._opener = opener_for(config.url, config.ca)
        self._config, self._token, self._coding, self._failures = config, config.token, CODING, 0
        self._offset.forget()  # it may be another service's clock

    def _done(self) -> bool:
        return self._stop.is_set() and (not self._outbox.backlog or time.monotonic() >= self._give_up_at)

    def _turn(self) -> float | None:
        """Do one request; seconds to wait before the next, None for at once."""
        if self._offset.value is None or time.monotonic() >= self._measure_at:
            pause = self._measure()
            if pause is not None:
                return pause
        if self._offset.value is not None:
            self._outbox.seal(self._offset.value)
        batch = self._outbox.unsent(self._limit)
        if batch is None:
            return max(0.0, self._measure_at - time.monotonic())
        return self._send(batch)

    def _measure(self) -> float | None:
        for _ in range(FIRST_TRIPS if self._offset.value is None else 1):
            answer = self._post(self._body([], self._offset.value or 0))
            if answer.status in _NOT_SPOKEN and self._speak_plainly(answer):
                return 0.0
            if answer.status != HTTPStatus.OK or answer.body is None:
                return self._wait_after(answer)
        self._measure_at = time.monotonic() + MEASURE_S
        self._failures = 0
        if self._offset.value is None:  # a service that tells no time: stamps go out as they are
            self._offset.value = 0
        return None

    def _send(self, batch: Outgoing) -> float | None:
        sent = [(incarnation, event) for _, incarnation, event in batch.items]
        content = self._body(sent, batch.offset or 0)
        answer = self._post(content)
        if answer.status == HTTPStatus.OK and answer.body is not None and "accepted" in answer.body:
            self._taken(batch, content.items, answer.body)
            return None
        if answer.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE and self._speak_plainly(answer):
            return None
        if answer.status in _TOO_MUCH:
            return self._narrow(batch, answer)
        return self._wait_after(answer)

    def _speak_plainly(self, answer: Answer) -> bool:
        """Go back to gzip: an older service, or something before it, does not know our coding. False if we did."""
        if self._coding == GZIP:
            return False
        log.info("%s does not take %s (%s): gzip from here on", self._config.url, self._coding, answer.status)
        self._coding = GZIP
        return True

    def _taken(self, batch: Outgoing, items: list[Item], said: dict[str, Any]) -> None:
        for one in said.get("quarantined", ()):
            place = one.get("index", -1)
            if 0 <= place < len(items) and items[place][1]["seq"] == one.get("seq"):
                self._bury(items[place][1], items[place][0], str(one.get("reason", "quarantined")))
        self._outbox.ack(batch.items[-1][0] + 1)
        self.sent += len(batch.items)
        self._failures = 0
        self._limit = min(BATCH, self._limit * 2)

    def _narrow(self, batch: Outgoing, answer: Answer) -> float | None:
        """A body that the service cannot take: halve it until the one event is found that it is about."""
        if len(batch.items) > 1:
            self._limit = max(1, len(batch.items) // 2)
            return None
        position, incarnation, event = batch.items[0]
        self._bury(event, incarnation, f"{answer.status}: {answer.error}")
        self._outbox.ack(position + 1)
        return None

    def _bury(self, event: dict[str, Any], incarnation: str, reason: str) -> None:
        log.warning("refused for good: %s event %s: %s", event.get("type"), event.get("seq"), reason)
        self._dead.put(event, incarnation, reason, time.time_ns())

    def _body(self, items: list[Item], offset: int) -> Body:
        agent = {"node": self._config.node, "incarnation": self._outbox.incarnation, "version": VERSION}
        return body(agent, offset, time.time_ns(), items, self._coding)

    def _post(self, content: Body) -> Answer:
        headers = {"User-Agent": f"ett-agent/{VERSION}", "Content-Encoding": content.coding}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        url = self._config.url + "/v1/events"
        answer = post(self._opener, url, content.data, headers, self._config.timeout_s)
        server_time = answer.body.get("server_time") if answer.body is not None else None
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self._read_token()
        if answer.status == HTTPStatus.OK:
            self.reached_at = time.time()
        if answer.status == HTTPStatus.OK and type(server_time) is int:
            self._offset.sample(answer.sent, answer.mono_sent, answer.mono_received, server_time)
        return answer

    def _read_token(self) -> None:
        """A token may have been rotated: its file has the new one."""
        if self._config.token_file:
            try:
                self._token = read_token(self._config.token_file)
            except (OSError, ValueError) as error:
                log.warning("the token's file cannot be read again: %s", error)

    def _wait_after(self, answer: Answer) -> float:
        """Seconds to wait: exponential with full jitter, and never less than the service asked for."""
        self._failures += 1
        self.retried += 1
        if self._failures in (1, 10) or self._failures % 100 == 0:
            what = answer.status or "no answer"
            log.warning(
                "%s: %s %s (%d events wait)", self._config.url, what, answer.error, self._outbox.backlog
            )
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures - 1, 10))
        pause = random.uniform(longest / 2, longest)  # noqa: S311 - spreads agents, hides nothing
        return pause + min(LONGEST_ASKED_S, answer.retry_after or 0.0)
