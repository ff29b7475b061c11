"""The recorded processes of a node and their attempts: found by their spools, read, watched, buried."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from ett_collector.agent.attempts import GRACE_NS, Attempt
from ett_collector.agent.nodeclock import NodeClock
from ett_collector.agent.tail import Position, list_spools, read_spool, version_of
from ett_collector.agent.trace import Trace
from ett_collector.agent.watch import Death, Watch
from ett_collector.process import boot_id
from ett_collector.spool import HEAD_VERSION, segment_name

if TYPE_CHECKING:
    from ett_collector.agent.config import AgentConfig
    from ett_collector.agent.outbox import State
    from ett_collector.agent.pending import Pending

EVENTS_A_CYCLE = 4000
HEADLESS_S = 3600.0  # a file whose writer was killed before its first record
HELD_S = 10.0  # the longest that a slot is waited for whose writer may be in the middle of it
KEEP_ATTEMPT_NS = 3_600_000_000_000  # after its end and the last of its spools, for stragglers

log = logging.getLogger("ett-agent")


class Trainers:
    """All recorded processes of one node. What they say goes to `pending`; `state` is that of the outbox."""

    def __init__(self, config: AgentConfig, state: State, pending: Pending) -> None:
        self.config = config
        agent = state.get("agent", {})
        # with nobody here whose stamps have to go together the clock may begin anew, should the wall's be right now
        is_idle = not (state.get("traces") or state.get("attempts"))
        self.clock = NodeClock.of(boot_id(config.procfs), {} if is_idle else agent.get("clock", {}))
        self.watch = Watch(config.procfs, self.clock)
        traces = state.get("traces", {})
        # what an agent of another version was reading is not read on: it is another format
        pending.gone |= {name for name, one in traces.items() if one["head"].get("v") != HEAD_VERSION}
        self.traces = {name: Trace.from_json(traces[name]) for name in traces if name not in pending.gone}
        self.attempts: dict[tuple[str, str], Attempt] = {}
        for one in state.get("attempts", {}).values():
            self.attempts[one["job"], one["attempt"]] = Attempt.from_json(one)
        self._pending = pending
        self._known_before = set(self.traces)
        self._alive_before = int(agent.get("alive_at", 0))
        self._deaths: dict[str, Death] = {}
        self._foreign: set[str] = set()
        self._behind: set[str] = set()  # spools that were not read to their ends
        self._headless: dict[str, float] = {}  # since when they were seen
        self._held: dict[str, float] = {}  # spools with a slot that is waited for, since when
        self._spools: dict[str, list[int]] = {}
        self.dropped = 0  # records that are lost for good

    def visit(self) -> bool:
        """Look at spools and processes once; whether there is more to read at once."""
        self._spools = list_spools(self.config.spool_dir)
        self._find()
        if self._look():  # whoever died may have begun another file after we looked
            self._spools = list_spools(self.config.spool_dir)
        return self._read()

    def tell(self, now: int, *, all_windows: bool) -> None:
        """Tell what is open since long, and windows that are old (or `all_windows`)."""
        for name, trace in self.traces.items():
            if name in self._behind:
                continue  # what was open at the place where reading paused need not be open now
            window = trace.marks.window
            old = window is not None and now - window.start >= self.config.window_ns
            self._pending.add(name, trace.tell_open(now, self.config.window_ns))
            if all_windows or old:
                self._pending.add(name, trace.flush())
        self._end_attempts(now)

    def alive(self) -> list[dict[str, Any]]:
        """Who lives, as a heartbeat tells it."""
        alive: dict[tuple[str, str], set[int]] = {}
        for trace in self.traces.values():
            if trace.finished is None and not trace.is_launcher:
                alive.setdefault(trace.key, set()).add(trace.head["rank"])
            elif trace.finished is None and not self.attempts[trace.key].trainers:
                alive.setdefault(trace.key, set())
        return [{"job": j, "attempt": a, "ranks": sorted(ranks)} for (j, a), ranks in sorted(alive.items())]

    def changes(self) -> dict[str, dict[str, Any]]:
        """What the outbox's state has to keep of all that `pending` names."""
        traces: dict[str, Any] = {name: self.traces[name].to_json() for name in self._pending.dirty}
        traces.update(dict.fromkeys(self._pending.gone))
        attempts: dict[str, Any] = {}
        for key in self._pending.changed:
            found = self.attempts.get(key)
            attempts["\n".join(key)] = None if found is None else found.to_json()
        return {"traces": traces, "attempts": attempts}

    def clear(self) -> None:
        """Delete what is durable in the outbox: read segments, and spools of processes that have ended."""
        for name, trace in list(self.traces.items()):
            numbers = self._spools.get(name, [])
            done = trace.left
            for number in numbers:
                if done or number < trace.position.segment:
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self.config.spool_dir, segment_name(name, number)))
            if done and not numbers:
                self.watch.forget(name)
                self._deaths.pop(name, None)
                self._held.pop(name, None)
                self._known_before.discard(name)
                del self.traces[name]
                self._pending.gone.add(name)

    def _find(self) -> None:
        for name, numbers in self._spools.items():
            if name in self.traces:
                continue
            version = version_of(self.config.spool_dir, name, numbers[0])
            if version not in (None, HEAD_VERSION):
                self._tell_foreign(name, version)
                continue
            found = read_spool(self.config.spool_dir, name, numbers, Position())
            head = found.records[0] if found.records else {}
            if not isinstance(head, dict) or head.get("t") != "head":
                self._discard_headless(name, numbers)
                continue
            self._headless.pop(name, None)
            trace = Trace.of(name, head, self.clock)
            self.traces[name] = trace
            attempt = self._attempt(trace)
            self._pending.changed.add(trace.key)
            self._pending.add(name, attempt.join(trace, self.config.node))

    def _attempt(self, trace: Trace) -> Attempt:
        return self.attempts.setdefault(trace.key, Attempt(*trace.key))

    def _tell_foreign(self, name: str, version: int | None) -> None:
        if name not in self._foreign:
            self._foreign.add(name)
            log.warning(
                "%s is written in version %s, this agent reads %s: left alone", name, version, HEAD_VERSION
            )

    def _discard_headless(self, name: str, numbers: list[int]) -> None:
        since = self._headless.setdefault(name, time.monotonic())
        if time.monotonic() - since > HEADLESS_S:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.config.spool_dir, segment_name(name, numbers[-1])))

    def _look(self) -> bool:
        """Look at the processes; whether one has died."""
        found: dict[str, Death] = {}
        for name, trace in self.traces.items():
            if name in self._deaths or trace.finished is not None:
                continue
            newest = (self._spools.get(name) or [trace.position.segment])[-1]
            death = self.watch.check(name, trace.head, self.config.spool_dir, newest)
            if death is not None:
                found[name] = death
        now = self.clock.now()  # of those that one look finds dead nobody knows who was first
        for name, death in found.items():
            self._deaths[name] = death if death.at is None else death._replace(at=now)
        return bool(found)

    def _read(self) -> bool:
        done = []
        self._behind.clear()
        # parents first: they know how their children ended
        for trace in sorted(self.traces.values(), key=lambda one: (not one.is_launcher, one.head["rank"])):
            unread = True
            while unread and len(self._pending.events) < EVENTS_A_CYCLE:
                unread = self._read_some(trace.name, trace)
            if unread:
                self._behind.add(trace.name)
            else:
                done.append(trace)
        for trace in done:
            self._bury(trace.name, trace)
        return bool(self._behind)

    def _read_some(self, name: str, trace: Trace) -> bool:
        """Read on in one spool; whether there is more."""
        found = read_spool(
            self.config.spool_dir,
            name,
            self._spools.get(name, []),
            trace.position,
            patient=self._is_patient(name, trace),
        )
        lost = trace.lost
        if found.gap:
            trace.skip()
        if found.position != trace.position:
            trace.position = found.position
            self._pending.dirty.add(name)
        for record in found.records:
            self._pending.events += trace.read(record, self.config.window_ns)
        if not found.held:
            self._held.pop(name, None)
        elif name not in self._held or found.records:
            self._held[name] = time.monotonic()
        self.dropped += trace.lost - lost + found.torn + found.gap
        if found.torn:
            trace.torn += found.torn
            log.warning("%s: %d torn records skipped", name, found.torn)
        return found.more

    def _is_patient(self, name: str, trace: Trace) -> bool:
        """Whether a slot that is taken may still be written."""
        if name in self._deaths or trace.finished is not None:
            return False
        return time.monotonic() - self._held.get(name, time.monotonic()) < HELD_S

    def _bury(self, name: str, trace: Trace) -> None:
        """All of its records are read: book its death, and what its end means for the attempt."""
        death = self._deaths.get(name)
        if death is not None and trace.finished is None:
            word = self._attempt(trace).parents_word(trace.head["pid"], trace.head["ticks"])
            if word is not None:  # it knows better than anybody who watches from outside
                death = Death(word.pop("at"), word, death.noticed)
            elif self._has_parent(trace) and self.clock.now() < death.noticed + GRACE_NS:
                return
            lived = max(trace.newest, self._alive_before if name in self._known_before else 0)
            at = lived if death.at is None else death.at
            self._pending.add(name, trace.die(at, death.status, inferred=death.at is None))
        if trace.finished is not None and not trace.left:
            trace.left = True
            self._pending.dirty.add(name)
            self._attempt(trace).leave(trace.finished)
            self._pending.changed.add(trace.key)

    def _has_parent(self, trace: Trace) -> bool:
        """Whether an `ett-run` still waits for this process."""
        child = [trace.head["pid"], trace.head["ticks"]]
        return any(one.child == child and one.finished is None for one in self.traces.values())

    def _end_attempts(self, now: int) -> None:
        # who has ended counts once its attempt knows how: a look may stop behind the record that says so
        left = [trace for trace in self.traces.values() if not trace.left]
        live = {one.key for one in left if not (one.is_launcher and self.attempts[one.key].trainers)}
        here = {trace.key for trace in self.traces.values()}
        for key, attempt in list(self.attempts.items()):
            if attempt.ended:
                if key not in here and now - max(e["at"] for e in attempt.ends) > KEEP_ATTEMPT_NS:
                    del self.attempts[key]
                    self._pending.changed.add(key)
                continue
            end = None if key in live else attempt.end(now, self.config.node)
            if end is not None:
                self._pending.events.append(end)
                self._pending.changed.add(key)
