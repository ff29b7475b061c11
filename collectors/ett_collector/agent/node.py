"""The agent's cycle: look at the spools and processes of the node, and commit what they say as events."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from ett_collector.agent.attempts import GRACE_NS, Attempt
from ett_collector.agent.outbox import Full
from ett_collector.agent.tail import Position, list_spools, read_spool, version_of
from ett_collector.agent.trace import Trace
from ett_collector.agent.watch import Death, Watch
from ett_collector.spool import HEAD_VERSION, segment_name
from ett_collector.wire import Rejected, decode_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from ett_collector.agent.config import AgentConfig
    from ett_collector.agent.deadletter import DeadLetters
    from ett_collector.agent.offset import ClockOffset
    from ett_collector.agent.outbox import Outbox

EVENTS_A_CYCLE = 4000
HEADLESS_S = 3600.0  # a file whose writer was killed before its first record
HELD_S = 10.0  # the longest that a slot is waited for whose writer may be in the middle of it
KEEP_ATTEMPT_NS = 3_600_000_000_000  # after its end, for stragglers
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
    ) -> None:
        self._config = config
        self._committed = committed
        self._outbox = outbox
        self._offset = offset
        self._dead = dead
        self.watch = Watch(config.procfs)
        state = outbox.state
        traces = state.get("traces", {})
        # what an agent of another version was reading is not read on: it is another format
        foreign = {name for name, one in traces.items() if one["head"].get("v") != HEAD_VERSION}
        self._traces = {name: Trace.from_json(traces[name]) for name in traces if name not in foreign}
        self._attempts: dict[tuple[str, str], Attempt] = {}
        for one in state.get("attempts", {}).values():
            self._attempts[one["job"], one["attempt"]] = Attempt.from_json(one)
        self._known_before = set(self._traces)
        self._alive_at = int(state.get("agent", {}).get("alive_at", 0))
        self._deaths: dict[str, Death] = {}
        self._dirty: set[str] = set()
        self._gone: set[str] = foreign  # traces that the state still holds and that are no more
        self._changed: set[tuple[str, str]] = set()
        self._foreign: set[str] = set()
        self._held: dict[str, float] = {}  # spools with a slot that is waited for, since when
        self._events: list[dict[str, Any]] = []
        self._beat_at = 0.0
        self._complain_at = 0.0

    def cycle(self, *, last: bool = False) -> bool:
        """One look at everything; whether there is more to read at once. `last`: the agent ends after it."""
        if self._events and not self._commit():
            return False  # the disk takes nothing: the spools keep the rest
        spools = list_spools(self._config.spool_dir)
        self._find(spools)
        if self._look(spools):  # whoever died may have begun another file after we looked
            spools = list_spools(self._config.spool_dir)
        more = self._read(spools)
        now = time.time_ns()
        beat = last or (time.monotonic() >= self._beat_at and not more)
        for name, trace in self._traces.items():
            window = trace.marks.window
            old = window is not None and now - window.start >= self._config.window_ns
            self._add(name, trace.tell_open(now, self._config.window_ns))
            if beat or old:
                self._add(name, trace.flush())
        self._end_attempts(now)
        if beat:
            self._heartbeat(now)
        if self._events or self._changed:
            self._commit()
        self._clear(spools)
        return more

    def _find(self, spools: dict[str, list[int]]) -> None:
        for name, numbers in spools.items():
            if name in self._traces:
                continue
            version = version_of(self._config.spool_dir, name, numbers[0])
            if version not in (None, HEAD_VERSION):
                self._tell_foreign(name, version)
                continue
            found = read_spool(self._config.spool_dir, name, numbers, Position())
            head = found.records[0] if found.records else {}
            if not isinstance(head, dict) or head.get("t") != "head":
                self._discard_headless(name, numbers)
                continue
            trace = Trace.of(name, head)
            self._traces[name] = trace
            attempt = self._attempts.setdefault(trace.key, Attempt(*trace.key))
            self._changed.add(trace.key)
            self._add(name, attempt.join(trace, self._config.node))

    def _tell_foreign(self, name: str, version: int | None) -> None:
        if name not in self._foreign:
            self._foreign.add(name)
            log.warning(
                "%s is written in version %s, this agent reads %s: left alone", name, version, HEAD_VERSION
            )

    def _discard_headless(self, name: str, numbers: list[int]) -> None:
        path = os.path.join(self._config.spool_dir, segment_name(name, numbers[-1]))
        with contextlib.suppress(OSError):
            if time.time() - os.path.getmtime(path) > HEADLESS_S:
                os.unlink(path)

    def _look(self, spools: dict[str, list[int]]) -> bool:
        """Look at the processes; whether one has died."""
        before = len(self._deaths)
        for name, trace in self._traces.items():
            if name in self._deaths or trace.finished is not None:
                continue
            newest = (spools.get(name) or [trace.position.segment])[-1]
            death = self.watch.check(name, trace.head, self._config.spool_dir, newest)
            if death is not None:
                self._deaths[name] = death
        return len(self._deaths) > before

    def _read(self, spools: dict[str, list[int]]) -> bool:
        more = False
        done = []
        for name, trace in self._traces.items():
            unread = True
            while unread and len(self._events) < EVENTS_A_CYCLE:
                found = read_spool(
                    self._config.spool_dir,
                    name,
                    spools.get(name, []),
                    trace.position,
                    patient=self._is_patient(name, trace),
                )
                unread = found.more
                if found.gap:
                    trace.skip()
                if found.position != trace.position:
                    trace.position = found.position
                    self._dirty.add(name)
                for record in found.records:
                    self._events += trace.read(record, self._config.window_ns)
                if not found.held:
                    self._held.pop(name, None)
                elif name not in self._held or found.records:
                    self._held[name] = time.monotonic()
                self._complain(trace, found.torn)
            more = more or unread
            if not unread:
                done.append(name)
        # parents first: they know how their children ended
        for name in sorted(done, key=lambda one: not self._traces[one].is_launcher):
            self._bury(name, self._traces[name])
        return more

    def _is_patient(self, name: str, trace: Trace) -> bool:
        """Whether a slot that is taken may still be written."""
        if name in self._deaths or trace.finished is not None:
            return False
        return time.monotonic() - self._held.get(name, time.monotonic()) < HELD_S

    def _bury(self, name: str, trace: Trace) -> None:
        """All of its records are read: book its death, and what its end means for the attempt."""
        death = self._deaths.get(name)
        if death is not None and trace.finished is None:
            attempt = self._attempts.setdefault(trace.key, Attempt(*trace.key))
            word = attempt.parents_word(trace.head["pid"], trace.head["ticks"])
            if word is not None:  # it knows better than anybody who watches from outside
                death = Death(word.pop("at"), word, death.noticed)
            elif self._has_parent(trace) and time.time_ns() < death.noticed + GRACE_NS:
                return
            lived = max(trace.newest, self._alive_at if name in self._known_before else 0)
            at = lived if death.at is None else death.at
            self._add(name, trace.die(at, death.status, inferred=death.at is None))
        if trace.finished is not None and not trace.left:
            trace.left = True
            self._dirty.add(name)
            self._attempts.setdefault(trace.key, Attempt(*trace.key)).leave(trace.finished)
            self._changed.add(trace.key)

    def _has_parent(self, trace: Trace) -> bool:
        """Whether an `ett-run` still waits for this process."""
        child = [trace.head["pid"], trace.head["ticks"]]
        return any(one.child == child and one.finished is None for one in self._traces.values())

    def _end_attempts(self, now: int) -> None:
        live = {t.key for t in self._traces.values() if t.finished is None and not t.is_launcher}
        for key, attempt in list(self._attempts.items()):
            if key in live or (attempt.ended and now - max(e["at"] for e in attempt.ends) < KEEP_ATTEMPT_NS):
                continue
            if attempt.ended:
                del self._attempts[key]
                self._changed.add(key)
                continue
            end = attempt.end(now, self._config.node)
            if end is not None:
                self._events.append(end)
                self._changed.add(key)

    def _heartbeat(self, now: int) -> None:
        self._beat_at = time.monotonic() + self._config.heartbeat_ns / 1e9
        self._alive_at = now
        alive: dict[tuple[str, str], set[int]] = {}
        for trace in self._traces.values():
            if trace.finished is None and not trace.is_launcher:
                alive.setdefault(trace.key, set()).add(trace.head["rank"])
            elif trace.finished is None and not self._attempts[trace.key].trainers:
                alive.setdefault(trace.key, set())
        jobs = [{"job": j, "attempt": a, "ranks": sorted(ranks)} for (j, a), ranks in sorted(alive.items())]
        self._events.append({"type": "heartbeat", "ts": now, "jobs": jobs})

    def _add(self, name: str, events: list[dict[str, Any]]) -> None:
        if events:
            self._dirty.add(name)
            self._events += events

    def _commit(self) -> bool:
        self._events = [event for event in self._events if self._is_sound(event)]
        traces: dict[str, Any] = {name: self._traces[name].to_json() for name in self._dirty}
        traces.update(dict.fromkeys(self._gone))
        attempts: dict[str, Any] = {}
        for key in self._changed:
            found = self._attempts.get(key)
            attempts["\n".join(key)] = None if found is None else found.to_json()
        changes = {"traces": traces, "attempts": attempts, "agent": {"alive_at": self._alive_at}}
        try:
            self._outbox.commit(self._events, changes, self._offset.value)
        except (Full, OSError) as error:
            self._say("outbox: %s; nothing is read on until it can be kept", error)
            return False
        self._events, self._dirty, self._gone, self._changed = [], set(), set(), set()
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

    def _clear(self, spools: dict[str, list[int]]) -> None:
        """Delete what is durable in the outbox: read segments, and spools of processes that have ended."""
        if self._dirty or self._changed:
            return  # the last commit did not succeed
        for name, trace in list(self._traces.items()):
            numbers = spools.get(name, [])
            done = trace.left
            for number in numbers:
                if done or number < trace.position.segment:
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self._config.spool_dir, segment_name(name, number)))
            if done and not numbers:
                self.watch.forget(name)
                self._deaths.pop(name, None)
                self._held.pop(name, None)
                self._known_before.discard(name)
                del self._traces[name]
                self._gone.add(name)

    def _complain(self, trace: Trace, torn: int) -> None:
        trace.torn += torn
        if torn:
            log.warning("%s: %d torn records skipped", trace.name, torn)

    def _say(self, text: str, *values: object) -> None:
        """Say what may go on for long, but not in every cycle."""
        if time.monotonic() >= self._complain_at:
            self._complain_at = time.monotonic() + COMPLAIN_S
            log.warning(text, *values)
