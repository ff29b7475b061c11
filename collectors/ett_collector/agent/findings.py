"""What sources find, made events: whose it is where a process or a cgroup tells, else the node's.

A fault that names its attempt explains the end of that attempt alone. So it is named only where the process that it
names is a trainer, or where it ended one; a fault of somebody else's cgroup is nobody's here and is not told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector.agent.sources.cgroup import is_same
from ett_collector.agent.sources.source import Context, Fault, Subject, Verdict

if TYPE_CHECKING:
    from ett_collector.agent.pending import Pending
    from ett_collector.agent.sources.running import Found, Sources
    from ett_collector.agent.trace import Trace
    from ett_collector.agent.trainers import Trainers

SECOND_NS = 1_000_000_000
LOOKED_AT_NS = 3 * SECOND_NS  # how long sources still look at who has ended
REMEMBERED_NS = 120 * SECOND_NS
NEAR_NS = 5 * SECOND_NS  # between a count of the OOM killer and the death that it counts
PATIENCE_NS = 3 * SECOND_NS
SIGKILL = 9


@dataclass
class Known:
    """A recorded process, also for a while after its end. Stamps ns."""

    subject: Subject
    began: int
    cgroup: str = ""
    ended: int | None = None
    killed: bool = False  # by SIGKILL, or nobody knows how


class Undecided(NamedTuple):
    """A kill in a cgroup that waits for the death that it counted."""

    fault: Fault
    until: int


class Findings:
    """Turns what `sources` find into events of `pending`."""

    def __init__(self, node: str, sources: Sources, trainers: Trainers, pending: Pending) -> None:
        self.sources = sources
        self.cursors = dict(sources.cursors)  # of what is booked
        self._node = node
        self._trainers = trainers
        self._pending = pending
        self._known: dict[str, Known] = {}
        self._undecided: list[Undecided] = []

    def take(self, now: int) -> None:
        """Tell the sources who is here, and book what they have found. `now`: by the node's clock (ns)."""
        self._remember(now)
        for found in self.sources.drain():
            self._book(found, now)
        waiting, self._undecided = self._undecided, []
        for one in waiting:
            self._decide(one, now)

    def _remember(self, now: int) -> None:
        around = self.sources.around
        for name, trace in self._trainers.traces.items():
            known = self._known.get(name)
            if known is None:
                began = int(trace.head["began"] or trace.head["at"])
                self._known[name] = known = Known(_subject(trace, self._trainers), began)
            if not known.cgroup and known.subject.pid is not None:
                known.cgroup = around.cgroups.get(known.subject.pid, "")
            if known.ended is None and trace.finished is not None:
                known.ended, known.killed = int(trace.finished["at"]), _is_killed(trace.finished)
        gone = [
            n for n, one in self._known.items() if one.ended is not None and now - one.ended > REMEMBERED_NS
        ]
        for name in gone:
            if name not in self._trainers.traces:
                del self._known[name]
        subjects = tuple(
            one.subject for one in self._known.values() if one.ended is None or now - one.ended < LOOKED_AT_NS
        )
        if subjects != around.subjects:
            around.subjects = subjects

    def _book(self, found: Found, now: int) -> None:
        if found.read.cursor is not None:
            self.cursors[found.source] = self._pending.cursors[found.source] = found.read.cursor
        outdone = self.sources.is_outdone(found.source)
        for told in found.read.findings:
            if isinstance(told, Context):
                self._label(told)
                continue
            one = told._replace(at=told.at + self._trainers.clock.ahead_of_wall())
            if isinstance(one, Verdict):
                self._end(one)
            elif not outdone and one.pid is None and one.killed and one.cgroup:
                self._undecided.append(Undecided(one, now + PATIENCE_NS))
            elif not outdone:
                self._place(one)

    def _place(self, fault: Fault) -> None:
        for known in self._known.values():
            if fault.pid is not None and known.subject.pid == fault.pid and _may_be(known, fault):
                self._tell(fault, known.subject)
                return
        near = fault.cgroup is not None and any(
            is_same(one.cgroup, fault.cgroup) for one in self._known.values()
        )
        if near or not fault.local or (fault.pid is None and fault.cgroup is None):
            self._tell(fault, None)

    def _decide(self, one: Undecided, now: int) -> None:
        """Name those who died of it once their deaths are known; nobody's death after a while: a child's."""
        path = one.fault.cgroup or ""
        dead = [
            known
            for known in self._known.values()
            if is_same(known.cgroup, path)
            and known.killed
            and known.ended is not None
            and abs(known.ended - one.fault.at) < NEAR_NS
        ]
        for known in dead:
            self._tell(one.fault, known.subject)
        if dead:
            return
        if now < one.until:
            self._undecided.append(one)
        elif any(is_same(known.cgroup, path) for known in self._known.values()):
            self._tell(one.fault, None)

    def _tell(self, fault: Fault, subject: Subject | None) -> None:
        event: dict[str, Any] = {"type": "fault", "ts": fault.at, "kind": fault.kind, "text": fault.text}
        event |= {name: value for name in ("code", "gpu") if (value := getattr(fault, name)) is not None}
        if subject is not None:
            event |= {"job": subject.job, "attempt": subject.attempt}
            event |= {} if subject.rank is None else {"rank": subject.rank}
        self._pending.events.append(event)

    def _label(self, one: Context) -> None:
        attempt = self._trainers.attempts.get((one.job, one.attempt))
        if attempt is not None and attempt.since is not None:
            start = {"type": "attempt_start", "job": one.job, "attempt": one.attempt, "ts": attempt.since}
            self._pending.events.append({**start, "nodes": [self._node], "labels": dict(one.labels)})

    def _end(self, one: Verdict) -> None:
        end = {"type": "attempt_end", "job": one.job, "attempt": one.attempt, "ts": one.at}
        self._pending.events.append({**end, "outcome": one.outcome, "scheduler_state": one.state})


def _subject(trace: Trace, trainers: Trainers) -> Subject:
    rank = None if trace.is_launcher else int(trace.head["rank"])
    return Subject(trace.name, *trace.key, rank, trainers.watch.pid_of(trace.name, trace.head))


def _may_be(known: Known, fault: Fault) -> bool:
    """Whether the process lived then: pids are used again."""
    return known.began - SECOND_NS <= fault.at and (known.ended is None or fault.at <= known.ended + NEAR_NS)


def _is_killed(finished: dict[str, Any]) -> bool:
    if "outcome" in finished or finished.get("clean") or finished.get("exit_code") is not None:
        return False
    return int(finished.get("signal", SIGKILL)) == SIGKILL
