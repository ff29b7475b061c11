"""Events sorted by job and attempt as they come, and who is to be told of a heartbeat or a fault.

A heartbeat belongs to the attempts it names; one that names none speaks for its node. A fault that names
no attempt is handed to those of its job, or of its node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet_ett.core.facts import at, beats_of
from fleet_ett.core.identity import Delivered, unique

if TYPE_CHECKING:
    from ett_collector.wire import Event


_SHARED = ("heartbeat", "job")  # what belongs to no single attempt, whatever it names


@dataclass(slots=True)
class _Attempt:
    """What came of one attempt: `clean` while every identity in it is known to be single."""

    delivered: Delivered = field(default_factory=lambda: Delivered([], []))
    nodes: set[str] = field(default_factory=set)
    begun: int | None = None  # earliest attempt_start
    seen: int | None = None  # earliest stamp of any event
    released: bool = True
    additions: int = 0

    def note(self, stamp: int) -> None:
        self.seen = stamp if self.seen is None else min(self.seen, stamp)


@dataclass(slots=True)
class Deliveries:
    """Everything that has come, by job and attempt. `newest` is the newest stamp (ns)."""

    jobs: dict[str, dict[str, _Attempt]] = field(default_factory=dict)
    meta: dict[str, list[Event]] = field(default_factory=dict)
    beats: list[Event] = field(default_factory=list)
    faults: list[Event] = field(default_factory=list)
    newest: int = 0

    def take(self, delivered: Delivered) -> set[tuple[str, str]]:
        """Sort in what came; return the (job, attempt) that it can have changed."""
        touched: set[tuple[str, str]] = set()
        for batch in delivered.batches:
            attempt = self._place(batch.job, batch.attempt, touched)
            attempt.delivered.batches.append(batch)
            attempt.nodes.add(batch.node)
            attempt.note(int(batch.start.min()) - batch.clock_offset_ns)
            self.newest = max(self.newest, int(batch.end.max()) - batch.clock_offset_ns)
        newest = self.newest
        for event in delivered.events:
            stamp = event.end if event.end is not None else event.start
            if stamp is not None and stamp - event.clock_offset_ns > newest:
                newest = stamp - event.clock_offset_ns
            if event.job is not None and event.attempt is not None and event.type not in _SHARED:
                self._own(event, self._place(event.job, event.attempt, touched))
            else:
                self._shared(event, touched)
        self.newest = newest
        for event in delivered.conflicted:
            if event.job is not None and event.attempt is not None:
                self._place(event.job, event.attempt, touched).delivered.conflicted.append(event)
        for job, name in touched:
            self.jobs[job][name].additions += 1
        return touched

    def _shared(self, event: Event, touched: set[tuple[str, str]]) -> None:
        """What belongs to no single attempt."""
        if event.type == "heartbeat":
            self._beat(event, touched)
        elif event.type == "job":
            self.meta.setdefault(event.job or "", []).append(event)
            self.jobs.setdefault(event.job or "", {})
        elif event.type == "fault":
            self.faults.append(event)
            touched.update(self._near(event))

    def _place(self, job: str, attempt: str, touched: set[tuple[str, str]]) -> _Attempt:
        touched.add((job, attempt))
        attempts = self.jobs.setdefault(job, {})
        if attempt not in attempts:
            attempts[attempt] = _Attempt()
        return attempts[attempt]

    def _own(self, event: Event, attempt: _Attempt) -> None:
        attempt.delivered.events.append(event)
        attempt.nodes.add(event.node)
        if event.start is not None:
            attempt.note(at(event))
        if event.type == "attempt_start":
            attempt.begun = at(event) if attempt.begun is None else min(attempt.begun, at(event))
            attempt.released &= event.body.get("released_between", True)
            attempt.nodes.update(event.body.get("nodes", ()), event.body.get("gpus_by_node", ()))

    def _beat(self, event: Event, touched: set[tuple[str, str]]) -> None:
        self.beats.append(event)
        for one in event.body.get("jobs", ()):
            attempt = self._place(one["job"], one["attempt"], touched)
            attempt.note(at(event))
            attempt.nodes.add(event.node)
        if not event.body.get("jobs"):
            touched.update(self._near(event))

    def _near(self, event: Event) -> list[tuple[str, str]]:
        """The attempts that a fault or a heartbeat of a node, or of a whole job, can concern."""
        return [
            (job, name)
            for job, attempts in self.jobs.items()
            for name, attempt in attempts.items()
            if event.job == job or (event.job is None and event.node in attempt.nodes)
        ]

    def attempts(self, job: str, now: int) -> list[tuple[int, bool, str]]:
        """The job's attempts that had begun by `now`: (start ns, hardware released before, key), by start."""
        begun = [
            (one.begun if one.begun is not None else one.seen or 0, one.released, name)
            for name, one in self.jobs[job].items()
        ]
        return sorted(one for one in begun if one[0] <= now)

    def of(self, job: str, attempt: str) -> Delivered:
        """Everything that concerns one attempt, one event an identity."""
        one = self.jobs[job][attempt]
        own = one.delivered
        if one.additions > 1:
            again = unique([*own.events, *own.batches])
            again.conflicted += own.conflicted
            one.delivered, one.additions = again, 1
            own = again
        named = [
            beat
            for beat in self.beats
            if beats_of(beat, job, attempt) or (beat.node in one.nodes and not beat.body.get("jobs"))
        ]
        near = [f for f in self.faults if f.job == job or (f.job is None and f.node in one.nodes)]
        return Delivered([*own.events, *named, *near], own.batches, 0, 0, own.conflicted)
