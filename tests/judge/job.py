"""The state of one job's plan and the few things that all parts of a plan do with it.

`known.at` is the job's clock: whoever plans a stretch of time books it and so moves the clock on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from tests.judge.known import Incident, KnownJob
    from tests.judge.reports import Reports
    from tests.judge.spans import Span

MS = 1_000_000
SECOND = 1000 * MS
BLOCK = 32  # samples: the smallest amount that a step consumes
TAIL = frozenset({"stall", "unknown", "aborted_step"})


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint: where the job stood, and when it became durable (ns)."""

    step: int
    cursor: int
    at: int


@dataclass(slots=True)
class Job:
    """One job's plan as it grows.

    `samples`: in which attempts the data cursor is told (none, some, all); only where all tell it does it
    decide what is repeated. `unit`: how many counted steps make an optimizer step (None: not told).
    `late_end`: the next attempt starts before this one's end. `ready`: when each rank could begin its first
    step, where they did not wait for each other. `covered`: what has been trained on, blocks of samples
    where they decide, else steps; `step` and `cursor` are the next ones. `paying`: the incident whose cost
    the current attempt is part of. `tail`: ns of detection so far. `mute`: a rank that never reports.
    """

    name: str
    chance: random.Random
    reports: Reports
    known: KnownJob
    nodes: list[str]
    per_node: int
    gpus: int
    samples: str
    beats: bool
    batch: int = 8
    step: int = 1
    cursor: int = 0
    attempt: str = ""
    began: int = 0
    started: bool = False
    kept: bool = False
    late_end: bool = False
    with_samples: bool = False
    mute: int | None = None
    unit: int | None = None
    live: str | None = None
    ready: dict[int, int] = field(default_factory=dict)
    covered: set[int] = field(default_factory=set)
    saves: list[Saved] = field(default_factory=list)
    uploads: list[tuple[int, int, Saved]] = field(default_factory=list)
    paying: Incident | None = None
    tail: int = 0

    def ms(self, low: int, high: int) -> int:
        """A random duration of whole milliseconds, in ns."""
        return self.chance.randint(low, high) * MS

    def odds(self, share: float) -> bool:
        """True that often."""
        return self.chance.random() < share

    @property
    def ranks(self) -> list[int]:
        """The ranks that report in this attempt."""
        return [r for r in range(len(self.nodes) * self.per_node) if r != self.mute]

    def some_ranks(self) -> list[int]:
        """All of them, or a few."""
        ranks = self.ranks
        return (
            ranks if self.odds(0.5) else sorted(self.chance.sample(ranks, self.chance.randint(1, len(ranks))))
        )

    def node(self, rank: int) -> str:
        """Where the rank runs."""
        return self.nodes[rank // self.per_node]

    def say(self, rank: int, kind: str, /, **fields: Any) -> None:
        """Send an event of a rank, now and then a second time under another number."""
        for _ in range(2 if self.odds(0.03) else 1):
            self.reports.add(self.node(rank), kind, job=self.name, attempt=self.attempt, rank=rank, **fields)

    def lay(self, end: int, phase: str, booked: str, rank: int | None = None) -> None:
        """Book the time up to `end`, and to whose account it goes beside."""
        amount = end - self.known.at
        self.known.lay(end, phase, booked, self.gpus, None if rank is None else (self.node(rank), rank))
        if amount:
            self.tail = self.tail + amount if booked in TAIL else 0
        if self.paying is not None:
            if booked == "startup" or (booked == "unknown" and not self.started):
                self.paying.restart += amount
            if booked == "replay":
                self.paying.replay += amount

    def tell(self, span: Span, cut: int | None = None) -> None:
        """Report a phase. What an attempt's end at `cut` leaves open stays open, or its agent closes it."""
        if cut is not None and span.start >= cut:
            return
        key = f"{span.phase}-{span.start}"
        fields: dict[str, Any] = {"phase": span.phase, "start": span.start}
        ended = cut is None or span.end <= cut
        if not ended or self.odds(0.3):
            self.say(span.rank, "phase_open", span=key, **fields)
            fields["span"] = key
        if ended:
            self.say(span.rank, "phase", end=span.end, **fields)
        elif self.odds(0.3):
            self.say(span.rank, "phase", end=cut, aborted=True, **fields)
