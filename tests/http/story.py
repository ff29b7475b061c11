"""Small stories of jobs, told as events: what the HTTP tests ask about."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from ett_collector.wire import decode_event

if TYPE_CHECKING:
    from ett_collector.wire import Event

T0 = 1_772_452_800_000_000_000  # 2026-03-02T12:00:00Z
S = 1_000_000_000
HOUR = 3600 * S


@dataclass
class Job:
    """One job on one node: attempts of phases and steps, times in seconds after T0."""

    job: str
    gpus: int = 8
    node: str = "n1"
    meta: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    attempts: int = 0

    def begin(self, at: float, **more: Any) -> Job:
        """The next attempt gets its hardware."""
        self.attempts += 1
        return self.tell("attempt_start", ts=at, gpus=self.gpus, world_size=1, nodes=[self.node], **more)

    def phase(self, name: str, start: float, end: float, **more: Any) -> Job:
        """A phase of rank 0."""
        return self.tell("phase", rank=0, phase=name, start=start, end=end, **more)

    def steps(self, first: int, last: int, start: float, end: float) -> Job:
        """A window of steps of rank 0."""
        return self.tell("steps", rank=0, first=first, last=last, start=start, end=end)

    def saved(self, step: int, at: float) -> Job:
        """A durable checkpoint."""
        return self.tell("checkpoint", rank=0, step=step, ts=at, kind="save")

    def end(self, at: float, outcome: str = "completed", **more: Any) -> Job:
        """The attempt's hardware is released."""
        return self.tell("attempt_end", ts=at, outcome=outcome, **more)

    def tell(self, what: str, /, **fields: Any) -> Job:
        """Any event of the attempt; `ts`, `start` and `end` in seconds after T0."""
        moments = {
            name: T0 + round(fields.pop(name) * S) for name in ("ts", "start", "end") if name in fields
        }
        who = {"job": self.job, "attempt": f"a{self.attempts - 1}"}
        self.rows.append({"type": what, **who, **moments, **fields})
        return self

    def events(self) -> list[Event]:
        """All of it as checked events."""
        told = [{"type": "job", "job": self.job, **self.meta}, *self.rows]
        number = count()
        return [
            decode_event({"seq": next(number), **row}, node=self.node, incarnation=f"of {self.job}")
            for row in told
        ]


def rollback(job: str, *, gpus: int = 8, node: str = "n1", key: str = "graph-1", **meta: Any) -> Job:
    """2 h: compile, 900 of 1,000 steps saved, an XID, a gap, compile again, 100 steps replayed, the end."""
    return (
        Job(job, gpus, node, meta)
        .begin(0)
        .phase("compile_cold", 0, 100, work_key=key)
        .steps(1, 1000, 100, 4100)
        .saved(900, 3700)
        .tell("fault", ts=4120, kind="xid", code=79)
        .end(4200, "failed", exit_code=1, error="NCCL timeout")
        .begin(4300)
        .phase("compile_cold", 4300, 4400, work_key=key)
        .tell("checkpoint", rank=0, step=900, ts=4400, kind="load")
        .steps(901, 1500, 4400, 6800)
        .phase("checkpoint_save_block", 6800, 6900)
        .phase("publish_on_accelerator", 6900, 7200)
        .end(7200)
    )
