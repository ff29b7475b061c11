"""An agent of a node in tests: numbers what it says, and hands it in."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleet_ett.ingest import decode_batch, take_in

if TYPE_CHECKING:
    from fleet_ett.ingest import Store

S = 1_000_000_000
HOUR = 3600 * S


@dataclass
class Agent:
    """One life of an agent. `said`: every event so far, numbered from 1."""

    node: str = "n1"
    incarnation: str = "life-1"
    said: list[dict[str, Any]] = field(default_factory=list)

    def say(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """One more event."""
        event = {"seq": len(self.said) + 1, "type": kind, **fields}
        self.said.append(event)
        return event

    def body(self, events: list[dict[str, Any]] | None = None, **envelope: Any) -> dict[str, Any]:
        """A body of those events, or of all."""
        agent = {"node": self.node, "incarnation": self.incarnation, "version": "1.0"}
        return {"agent": agent, "events": self.said if events is None else events, **envelope}

    def hand_in(
        self,
        store: Store,
        events: list[dict[str, Any]] | None = None,
        *,
        now: int | None = None,
        **envelope: Any,
    ) -> dict[str, Any]:
        """Store those events, or all, at `now` (ns; the real time by default); the service's answer."""
        moment = time.time_ns() if now is None else now
        return take_in(decode_batch(self.body(events, **envelope), now=moment), store, now=moment)


def crashed_and_resumed(agent: Agent, job: str, start: int, *, steps: int = 20) -> None:
    """A job of two attempts: the first fails after `steps` steps of 10 s, half of which are trained again.

    Attempt 0: allocated at `start`, 100 s of compilation, the steps, 50 s of silence. 200 s of gap. Attempt 1:
    50 s of compilation, the steps from the half on, twice as many; ends completed.
    """
    agent.say("job", job=job, cluster="c1", team="t1", model="dlrm")
    at = start
    agent.say("attempt_start", job=job, attempt="a0", ts=at, gpus=8, world_size=1)
    agent.say(
        "phase", job=job, attempt="a0", rank=0, phase="compile_cold", start=at, end=at + 100 * S, work_key="k"
    )
    at += 100 * S
    for step in range(steps):
        agent.say("steps", job=job, attempt="a0", rank=0, first=step, last=step, start=at, end=at + 10 * S)
        at += 10 * S
    at += 50 * S
    agent.say("attempt_end", job=job, attempt="a0", ts=at, outcome="failed", exit_code=1)
    at += 200 * S
    agent.say("attempt_start", job=job, attempt="a1", ts=at, gpus=8, world_size=1)
    agent.say(
        "phase", job=job, attempt="a1", rank=0, phase="compile_cold", start=at, end=at + 50 * S, work_key="k"
    )
    at += 50 * S
    for step in range(steps // 2, steps // 2 + 2 * steps):
        agent.say("steps", job=job, attempt="a1", rank=0, first=step, last=step, start=at, end=at + 10 * S)
        at += 10 * S
    agent.say("attempt_end", job=job, attempt="a1", ts=at, outcome="completed", exit_code=0)
