"""One recorded process: its spool's records in, the wire's events out, and the state to go on from.

The state is JSON, so that it is kept in one durable step with the events that it gave (`outbox.py`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ett_collector.agent.stopwatch import DATA_STALL, Stopwatch
from ett_collector.agent.tail import Position, Raw
from ett_collector.agent.windows import StepMarks
from ett_collector.integrations import torchelastic
from ett_collector.wire import OUTCOMES

if TYPE_CHECKING:
    from ett_collector.agent.nodeclock import NodeClock

STEP = "step_new_data"
log = logging.getLogger("ett-agent")

_SPAN = ("phase", "span", "start", "work_key", "overlapped", "step", "attrs")


@dataclass
class Trace:
    """What is known of one process. Stamps ns.

    `spans` holds open spans by name, with `told` once their `phase_open` was sent. `begun` is the step in
    flight, `waiting` the wait for input, `newest` the newest stamp of any record. `finished` holds
    how it ended, once it has: by its own word (`end`) or by its death.
    """

    name: str
    head: dict[str, Any]
    position: Position = field(default_factory=Position)
    marks: StepMarks = field(default_factory=StepMarks)
    watch: Stopwatch = field(default_factory=lambda: Stopwatch(""))
    spans: dict[str, dict[str, Any]] = field(default_factory=dict)
    begun: dict[str, Any] | None = None
    waiting: dict[str, Any] | None = None
    newest: int = 0
    exiting: dict[str, Any] | None = None
    child: list[int] | None = None
    finished: dict[str, Any] | None = None
    left: bool = False  # its attempt knows that it has finished
    torn: int = 0
    lost: int = 0

    @classmethod
    def of(cls, name: str, head: dict[str, Any], clock: NodeClock) -> Trace:
        """The trace of a process of which nothing but its head was read."""
        base = clock.anchor if clock.knows(head) else None
        own = clock.adopt(head)
        return cls(name, own, watch=Stopwatch(str(head["id"])[:8], base), newest=int(own.get("at") or 0))

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Trace:
        """The state of `to_json` back."""
        known = dict(state)
        return cls(
            **{
                **known,
                "position": Position(*known["position"]),
                "marks": StepMarks.from_json(known["marks"]),
                "watch": Stopwatch(**known["watch"]),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        kept = {"marks": self.marks.to_json(), "watch": self.watch.to_json()}
        return {**vars(self), "position": list(self.position), **kept}

    @property
    def is_launcher(self) -> bool:
        """Whether it is an `ett-run` and no trainer."""
        return bool(self.head["kind"] == "launcher")

    @property
    def key(self) -> tuple[str, str]:
        """Job and attempt."""
        return self.head["job"], self.head["attempt"]

    def read(self, raw: Raw, window_ns: int) -> list[dict[str, Any]]:
        """The events of one slot or note of its spool."""
        record = self.watch.take(raw)
        return [] if record is None else self.take(record, window_ns)

    def skip(self) -> None:
        """Records are missing here: what was open need not be open any more."""
        self.watch.skip()
        self.spans, self.begun, self.waiting = {}, None, None

    def take(self, record: dict[str, Any], window_ns: int) -> list[dict[str, Any]]:
        """The events of one record."""
        if record.get("t") == "head":
            return []  # it is known, and its stamps are those of the wall clock
        self.newest = max(self.newest, record.get("at", 0), record.get("end", 0), record.get("start", 0))
        handle = getattr(self, f"_on_{record.get('t')}", None)  # a newer recorder may know more
        events = handle(record, window_ns) if handle is not None and self.finished is None else []
        return [self._own(event) for event in events]

    def tell_open(self, now: int, long_ns: int) -> list[dict[str, Any]]:
        """`phase_open` events for what is open and was not told yet; short things close before they are told.

        A step in flight and a wait for input are told once they are `long_ns` old.
        """
        old = [one for one in (self.begun, self.waiting) if one is not None and now - one["start"] > long_ns]
        untold = [span for span in (*self.spans.values(), *old) if not span.get("told")]
        for span in untold:
            span["told"] = True
        return [self._own({"type": "phase_open", **_span(span)}) for span in untold]

    def flush(self) -> list[dict[str, Any]]:
        """The open window as an event, if there is one."""
        return [self._own(event) for event in self.marks.close()]

    def die(self, at: int, status: dict[str, Any], *, inferred: bool) -> list[dict[str, Any]]:
        """The process is gone since `at` (ns): close what it left open. `status`: exit_code or signal."""
        if self.finished is not None:
            return []
        at = max(at, self.newest)
        events = self.marks.close()
        for span in self._left_open():
            event: dict[str, Any] = {"type": "phase", **_span(span), "end": max(at, span["start"])}
            if self.exiting is None or span["start"] < self.exiting["at"]:  # and no part of its proper end
                event["aborted"] = True
            if inferred:
                event["attrs"] = {**event.get("attrs", {}), "death": "inferred"}
            events.append(event)
        self.spans, self.begun, self.waiting = {}, None, None
        exiting = self.exiting or {}
        said = _some(exiting, "error", "exit_code")  # what it says itself, where nobody saw how it ended
        if status.get("exit_code") != 0:  # its last words are in torchelastic's file, where it wrote one
            words = torchelastic.error_text(self.head.get("error_file"))
            said |= {} if words is None else {"error": words}
        self._finish({"at": at, "clean": self.exiting is not None, **said, **status})
        return [self._own(event) for event in events]

    def _finish(self, facts: dict[str, Any]) -> None:
        self.finished = {
            **{name: value for name, value in facts.items() if value is not None},
            "rank": self.head["rank"],
            "pid": self.head["pid"],
            "ticks": self.head["ticks"],
            "launcher": self.is_launcher,
            **({} if self.child is None else {"child": self.child}),
        }

    def _left_open(self) -> list[dict[str, Any]]:
        return [*self.spans.values(), *(one for one in (self.begun, self.waiting) if one is not None)]

    def _own(self, event: dict[str, Any]) -> dict[str, Any]:
        return {**{name: self.head[name] for name in ("job", "attempt", "rank")}, **event}

    def _on_open(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        self.spans[record["span"]] = _span(record)
        return []

    def _on_phase(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        self.spans.pop(record["span"], None)
        waiting = self.waiting
        if waiting is not None and (record["phase"], record["start"]) == (DATA_STALL, waiting["start"]):
            self.waiting = None
            record = {**record, "span": waiting["span"]}  # under which it may have been told
        # a launcher may speak for each rank that it starts
        return [{"type": "phase", **_span(record), **_some(record, "end", "rank")}]

    def _on_begin(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        n = record["n"]
        span = f"{self.head['id'][:8]}-step-{n}-{record['at']}"
        self.begun = {"phase": STEP, "step": n, "start": record["at"], "span": span}
        if "samples" in record:
            self.marks.cursor = record["samples"]
        return []

    def _on_step(self, record: dict[str, Any], window_ns: int) -> list[dict[str, Any]]:
        told = self.begun if self.begun is not None and self.begun.get("told") else None
        self.begun = self.waiting = None
        events = self.marks.take(record, window_ns)
        if told is not None and self.marks.window is not None:
            events += self.marks.close()  # what was shown as in flight is now shown as done
        return events

    def _on_wait(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        span = f"{self.head['id'][:8]}-wait-{record['at']}"
        self.waiting = {"phase": DATA_STALL, "start": record["at"], "span": span}
        return []

    def _on_waited(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        waiting, self.waiting = self.waiting, None
        if waiting is None or not waiting.get("told"):
            return []
        return [{"type": "phase", **_span(waiting), "end": waiting["start"] + record["ns"]}]

    def _on_checkpoint(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        if record["kind"] == "load" and "cursor" in record:
            self.marks.cursor = record["cursor"]
        return [
            {
                "type": "checkpoint",
                "ts": record["at"],
                **_some(record, "step", "kind", "cursor", "mode", "bytes"),
            }
        ]

    def _on_fault(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        return [{"type": "fault", "ts": record["at"], **_some(record, "kind", "code", "text")}]

    def _on_told(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        told = record["facts"]
        job = {**told.get("facts", {}), **_some(told, "labels")}
        start = _some(told, "gpus", "world_size", "released_between")
        at = told.get("allocated") or self.head["allocated"] or self.head["launched_at"] or self.head["began"]
        events: list[dict[str, Any]] = [{"type": "job", **job}] if job else []
        return (
            [*events, {"type": "attempt_start", "ts": at, **start}]
            if start or "allocated" in told
            else events
        )

    def _on_notice(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        where = f"{self.head['job']} {self.head['attempt']} rank {self.head['rank']}"
        log.warning("%s: hook %s: %s", where, record["hook"], record["text"])
        return []

    def _on_end(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        events = self.marks.close()
        events += [{"type": "phase_open", **_span(one)} for one in self._left_open() if not one.get("told")]
        self.spans, self.begun, self.waiting = {}, None, None
        said = _some(record, "at", "outcome", "error", "exit_code")
        if said["outcome"] not in OUTCOMES:
            said |= {"outcome": "unknown", "error": f"outcome {said['outcome']}: {said.get('error', '')}"}
        self._finish(said)
        return events

    def _on_exit(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        self.exiting = record
        if self.is_launcher:
            self._finish({"clean": True, **_some(record, "at", "error", "exit_code", "signal")})
        return []

    def _on_child(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        self.child = [record["pid"], record["ticks"]]
        return []

    def _on_lost(self, record: dict[str, Any], _window_ns: int) -> list[dict[str, Any]]:
        self.lost += record["n"]
        log.warning("%s lost %d records: %s", self.name, record["n"], record.get("error"))
        return []


def _some(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: record[name] for name in names if name in record}


def _span(record: dict[str, Any]) -> dict[str, Any]:
    return _some(record, *_SPAN)
