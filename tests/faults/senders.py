"""Agents that post until everything was taken, and remember what was acknowledged."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from tests.postgres.agents import Agent, crashed_and_resumed

if TYPE_CHECKING:
    from collections.abc import Iterator

RETRIED = (429, 503)
PAUSE_S = 0.02


@dataclass
class Sender:
    """An agent of a job, and the bodies that it has still to hand in."""

    agent: Agent
    spool: list[list[dict[str, Any]]]
    acknowledged: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    longest_s: float = 0.0

    def post(self, client: httpx.Client) -> bool:
        """Try the oldest body; whether it was taken. Any answer but 200, 429 and 503 is a failure of the test."""
        events = self.spool[0]
        began = time.monotonic()
        try:
            answer = client.post("/v1/events", json=self.agent.body(events))
        except httpx.TransportError:
            self.statuses.append(0)
            return False
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.statuses.append(answer.status_code)
        if answer.status_code in RETRIED:
            assert int(answer.headers["retry-after"]) > 0
            return False
        assert 200 == answer.status_code, answer.text
        told = answer.json()
        assert len(events) == told["accepted"] + told["duplicates"]
        self.acknowledged += [event["seq"] for event in self.spool.pop(0)]
        return True


def make_senders(
    number: int, start: int, *, steps: int = 20, a_body: int = 5, name: str = "job"
) -> list[Sender]:
    """As many nodes, each with a job of its own that crashes and resumes (see `crashed_and_resumed`)."""
    senders = []
    for index in range(number):
        agent = Agent(node=f"{name}-node-{index}", incarnation=f"{name}-life-{index}")
        crashed_and_resumed(agent, f"{name}-{index}", start, steps=steps)
        said = agent.said
        senders.append(Sender(agent, [said[low : low + a_body] for low in range(0, len(said), a_body)]))
    return senders


class Posting:
    """The senders at work, each in a thread of its own, until all is taken."""

    def __init__(
        self, senders: list[Sender], url: str, *, pause_s: float = PAUSE_S, timeout_s: float = 60
    ) -> None:
        self.senders = senders
        self.error: BaseException | None = None
        self._url, self._pause_s, self._timeout_s = url, pause_s, timeout_s
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in senders]

    def __enter__(self) -> Posting:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error

    @property
    def left(self) -> int:
        """Bodies that still wait."""
        if self.error is not None:
            raise self.error
        return sum(len(one.spool) for one in self.senders)

    @property
    def answers(self) -> int:
        """How many answers came so far."""
        return sum(len(one.statuses) for one in self.senders)

    def finish(self, deadline_s: float = 60) -> None:
        """Return once all is taken."""
        until = time.monotonic() + deadline_s
        while self.left:
            assert time.monotonic() < until, f"{self.left} bodies were not taken"
            time.sleep(0.02)

    def _run(self, sender: Sender) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=self._timeout_s) as client:
                while sender.spool and not self._stopping.is_set():
                    sender.post(client)
                    time.sleep(self._pause_s)
        except BaseException as error:  # noqa: BLE001 - told by whoever looks
            self.error = error


def bodies(senders: list[Sender]) -> Iterator[tuple[Agent, list[dict[str, Any]]]]:
    """Everything that was ever said, for a second delivery."""
    for one in senders:
        yield one.agent, one.agent.said
