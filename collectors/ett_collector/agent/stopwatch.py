"""What one process stamped, worked out: how long a step was, and how much of it was a wait or a phase.

The recorder only stamps (`slots.py`); here its slots become the records that `trace.py` takes: `open` and `phase`
(a span begins, ends), `begin` and `step` (a step is in flight, is complete), `wait` and `waited` (for input), and
the notes as they are. Stamps are monotonic time and become those of the node's clock (`nodeclock.py`), whatever was
done to the wall clock meanwhile. Of a boot before this one they become wall ns by the anchor that held when they were
made; a span keeps the one that it began with, so that its length is monotonic time, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ett_collector.slots import ANCHOR, BEGIN, CLOSE, NONE, OPEN, STEP, WAIT, WAITED

if TYPE_CHECKING:
    from ett_collector.agent.tail import Raw

LONG_WAIT_NS = 1_000_000_000  # a longer wait for input is a span of its own
JUMP_NS = 1_000_000_000  # a clock that was set by more than this within a span is told with it
DATA_STALL = "data_stall"
MAX_NAMES = 2048  # a recorder uses a quarter of these at a time
_TAKERS = {  # kind -> method, and how many words it takes after the stamp
    STEP: ("_step", 2),
    BEGIN: ("_begin", 2),
    OPEN: ("_open", 3),
    CLOSE: ("_close", 5),
    WAIT: ("_wait", 0),
    WAITED: ("_waited", 1),
}


@dataclass
class Stopwatch:
    """The state between two records of a process; `token` makes its span names unique in the attempt.

    `base` is the anchor of the node's clock, None for records of another boot. A moment is [wall stamp, mono].
    `left` is the last mark, `begun` where the first step was said to begin, `prepared` the end of the last phase
    before any mark. Spans and names are kept by number, as text for JSON.
    """

    token: str
    base: int | None = None
    anchor: int = 0
    names: dict[str, dict[str, Any]] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)  # of spans whose begin is to come
    spans: dict[str, dict[str, Any]] = field(default_factory=dict)
    left: list[int] | None = None
    begun: list[int] | None = None
    prepared: list[int] | None = None
    depth: int = 0  # blocking spans that are open, in any thread
    blocked_since: int = 0
    blocked: int = 0  # mono ns in blocking spans so far
    blocked_at_mark: int = 0
    waits: int = 0  # waits that are open
    wait_since: list[int] | None = None
    blocked_at_wait: int = 0
    waited: int = 0  # ns of short waits since the last mark

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self)

    def skip(self) -> None:
        """Records are missing here: what was open before is not known to be open still."""
        self.spans, self.attrs = {}, {}
        self.left = self.begun = self.prepared = self.wait_since = None
        self.depth = self.waits = self.waited = 0
        self.blocked_at_mark = self.blocked

    def take(self, raw: Raw) -> dict[str, Any] | None:
        """The record of a slot or note; None where it says nothing by itself."""
        if isinstance(raw, dict):
            return self._note(raw)
        kind, mono, *words = raw
        if kind == ANCHOR:
            self.anchor = words[0]
        name, count = _TAKERS.get(kind, ("", 0))  # others are void, or of a newer recorder
        record: dict[str, Any] | None = getattr(self, name)(mono, *words[:count]) if name else None
        return record

    def _note(self, note: dict[str, Any]) -> dict[str, Any] | None:
        kind = note.get("t")
        if kind == "name":
            number = str(note["number"])
            self.names.pop(number, None)
            self.names[number] = note["fields"]
            if len(self.names) > MAX_NAMES:
                del self.names[next(iter(self.names))]
            return None
        if kind == "attrs":
            self.attrs[str(note["span"])] = note["attrs"]
            return None
        mono = note.pop("mono", None)
        anchor = note.pop("anchor", self.anchor)
        if self.base is not None and anchor:  # stamps of the wall, made elsewhere
            ahead = self.base - anchor
            note |= {name: note[name] + ahead for name in ("start", "end") if name in note}
        return note if mono is None else {**note, "at": self._stamp(mono)}

    def _moment(self, mono: int) -> list[int]:
        return [mono + self.anchor, mono]

    def _stamp(self, mono: int) -> int:
        return mono + (self.anchor if self.base is None else self.base)

    def _span(self, start: list[int], now: list[int]) -> tuple[int, int, int]:
        """(start, end, clock jump ns) of a span between two moments.

        The end is the start plus monotonic time. The jump is 0 unless wall and monotonic differ by over a second.
        """
        passed = max(0, now[1] - start[1])
        jump = now[0] - start[0] - passed
        begun = start[0] if self.base is None else start[1] + self.base
        return begun, begun + passed, jump if abs(jump) > JUMP_NS else 0

    def _step(self, mono: int, n: int, samples: int) -> dict[str, Any]:
        now = self._moment(mono)
        blocked = self._blocked_until(mono)
        start = self.left or self.begun or self.prepared or now
        begun, end, jump = self._span(start, now)
        since = max(0, blocked - self.blocked_at_mark) if start is not now else 0
        record = {
            "t": "step",
            "n": n,
            "start": begun,
            "end": end,
            "wait": min(self.waited, end - begun),
        }
        record["blocked"] = since
        if jump:
            record["jump"] = jump
        self.left, self.waited, self.blocked_at_mark = now, 0, blocked
        return record if samples == NONE else {**record, "samples": samples}

    def _begin(self, mono: int, n: int, samples: int) -> dict[str, Any]:
        now = self._moment(mono)
        if self.left is None:
            self.begun = now
            self._count_from(mono)
        record = {"t": "begin", "n": n, "at": self._stamp(mono)}
        return record if samples == NONE else {**record, "samples": samples}

    def _open(self, mono: int, number: int, name: int, step: int) -> dict[str, Any]:
        fields = self._fields(number, name, step)
        self.spans[str(number)] = {"fields": fields, "start": self._moment(mono)}
        if not fields.get("overlapped"):
            if self.depth == 0:
                self.blocked_since = mono
            self.depth += 1
        return {"t": "open", **fields, "span": f"{self.token}-{number}", "start": self._stamp(mono)}

    def _close(self, mono: int, number: int, name: int, step: int, begun: int, why: int) -> dict[str, Any]:
        now = self._moment(mono)
        span = self.spans.pop(str(number), None)
        if span is None:  # its begin is missing
            span = {"fields": self._fields(number, name, step), "start": self._moment(begun)}
        elif not span["fields"].get("overlapped"):
            self.depth -= 1
            if self.depth == 0:
                self.blocked += mono - self.blocked_since
            if self.left is None and self.begun is None:
                self.prepared = now
                self._count_from(mono)
        # what the end says goes before: a compilation turns out to have been in a cache
        fields = span["fields"]
        if str(name) in self.names:
            fields = {**fields, **self._fields(number, name, step)}
        start, end, jump = self._span(span["start"], now)
        record = {"t": "phase", **fields, "span": f"{self.token}-{number}", "start": start, "end": end}
        raised = self.names.get(str(why), {}).get("phase") if why else None
        extra = {key: value for key, value in (("clock_jump_ns", jump), ("raised", raised)) if value}
        return {**record, "attrs": {**fields.get("attrs", {}), **extra}} if extra else record

    def _wait(self, mono: int) -> dict[str, Any] | None:
        self.waits += 1
        if self.waits > 1:
            return None
        self.wait_since, self.blocked_at_wait = self._moment(mono), self._blocked_until(mono)
        return {"t": "wait", "at": self._stamp(mono)}

    def _waited(self, mono: int, begun: int) -> dict[str, Any] | None:
        """A wait ends: short ones are summed until the mark, a long one is a span where it was."""
        self.waits = max(0, self.waits - 1)
        since, self.wait_since = self.wait_since, self.wait_since if self.waits else None
        if self.waits or since is None:
            return None
        start, end, jump = self._span(since, self._moment(mono))
        waited = max(0, end - start - (self._blocked_until(mono) - self.blocked_at_wait))
        if waited < LONG_WAIT_NS or self.depth:
            self.waited += waited
            if self.left is None and self.begun is None and self.prepared is None:
                self.begun = since  # nothing else tells where the first step begins
                self.blocked_at_mark = self.blocked_at_wait
            return {"t": "waited", "ns": waited}
        self.blocked += waited
        span = f"{self.token}-wait-{begun}"
        record = {"t": "phase", "phase": DATA_STALL, "span": span, "start": start, "end": end}
        return {**record, "attrs": {"clock_jump_ns": jump}} if jump else record

    def _fields(self, number: int, name: int, step: int) -> dict[str, Any]:
        fields = {**self.names.get(str(name), {"phase": "unknown"})}
        if step != NONE:
            fields["step"] = step
        attrs = self.attrs.pop(str(number), None)
        return fields if attrs is None else {**fields, "attrs": attrs}

    def _count_from(self, mono: int) -> None:
        """The first step begins here: phases and waits before it are none of it."""
        self.waited, self.blocked_at_mark = 0, self._blocked_until(mono)

    def _blocked_until(self, mono: int) -> int:
        return self.blocked + (mono - self.blocked_since if self.depth else 0)
