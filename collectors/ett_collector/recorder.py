"""The recorder of one trainer process: raw facts into its spool, nothing into the trainer's way.

No method raises (an error is counted in `errors`), takes part in the trainer's exceptions or talks to a
network. What is a loss, and whose, is decided far from here.

Records (`t`): `head`, `open` and `phase` (a span begins, ends), `begin` and `step` (a step is in flight, is
complete), `wait` and `waited` (for input), `checkpoint`, `fault`, `end` (the trainer's word), `exit` (Python
finalises without one) and `lost` (records that could not be written). Stamps ns since the epoch UTC.
"""

from __future__ import annotations

import atexit
import sys
import threading
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector.clock import Clock, span_end
from ett_collector.frames import encode
from ett_collector.spans import DataWait, Phase

if TYPE_CHECKING:
    from ett_collector.spool import Spool

LONG_WAIT_NS = 1_000_000_000  # a longer wait for input is a span of its own
DATA_STALL = "data_stall"
ERROR_CHARACTERS = 8000


class Opened(NamedTuple):
    """A phase that has begun."""

    fields: dict[str, Any]
    span: str
    start: tuple[int, int]


class Waiting(NamedTuple):
    """A wait for input that has begun; `blocked` is what phases had taken until then (ns)."""

    start: tuple[int, int]
    blocked: int


class Recorder:
    """Records one rank of one attempt. `token` makes its span names unique in the attempt."""

    def __init__(self, spool: Spool, token: str, clock: Clock) -> None:
        self.errors = 0
        self._spool = spool
        self._token = token
        self._clock = clock
        self._numbers = count(1)
        # Re-entrant: a signal handler may record while its thread is recording.
        self._lock = threading.RLock()
        self._ended = False
        self._left: tuple[int, int] | None = None  # the last mark
        self._begun: tuple[int, int] | None = None  # the step that was said to begin before any mark
        self._prepared: tuple[int, int] | None = None  # the end of the last blocking phase before any mark
        self._depth = 0  # blocking spans that are open, in any thread
        self._blocked_since = 0
        self._blocked = 0  # monotonic ns in blocking spans so far
        self._blocked_at_mark = 0
        self._waits = 0  # waits that are open
        self._wait_ns = 0  # short waits since the last mark
        atexit.register(self._at_exit)

    @property
    def dropped(self) -> int:
        """Records that could not be written (disk full, folder gone ...)."""
        return self._spool.dropped

    def step(self, n: int, samples: int | None = None) -> None:
        """Step `n` is complete. `samples`: consumed by the whole job so far, this step included.

        A step runs from the mark before; the first one from `step_begin`, else from the end of the last phase
        before it (where neither was said it has no length, and the time before it stays unreported).
        """
        try:
            with self._lock:
                self._mark(int(n), samples)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self._failed(error)

    def step_begin(self, n: int, samples: int | None = None) -> None:
        """Step `n` begins: should the process die now, the books show a step in flight.

        `samples`: consumed by the whole job before it (needed once where nothing was loaded, usually 0).
        """
        try:
            with self._lock:
                now = self._clock.now()
                if self._left is None:
                    self._begun = now
                    self._count_from(now[1])
                head = b'{"t":"begin","n":%d,"at":%d' % (int(n), now[0])
                self._write(head + (b"}" if samples is None else b',"samples":%d}' % int(samples)))
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def phase(
        self,
        name: str,
        *,
        overlapped: bool = False,
        work_key: str | None = None,
        step: int | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> Phase:
        """A span: context manager or decorator (see `ett_collector.phase`)."""
        return Phase(
            lambda: self, phase_fields(name, overlapped=overlapped, work_key=work_key, step=step, attrs=attrs)
        )

    def data_wait(self) -> DataWait:
        """A wait for input: context manager."""
        return DataWait(lambda: self)

    def checkpoint_committed(
        self, step: int, *, samples: int | None = None, mode: str | None = None, size: int | None = None
    ) -> None:
        """A checkpoint that holds step `step` as its last is durable from now on.

        `samples`: consumed so far; `mode`: sync or async; `size`: bytes.
        """
        self._checkpoint("save", step, samples, mode, size)

    def checkpoint_loaded(self, step: int, *, samples: int | None = None) -> None:
        """The state after step `step` was loaded: the next step is `step + 1`."""
        self._checkpoint("load", step, samples, None, None)

    def fault(self, kind: str, text: str = "", *, code: int | str | None = None) -> None:
        """Something went wrong beside this process's own work (kinds: `ett_collector.wire.FAULT_KINDS`)."""
        self._note({"t": "fault", "kind": kind, "text": text or None, "code": code})

    def span(self, name: str, start: int, end: int) -> None:
        """A span that was measured elsewhere, between two stamps (wall ns)."""
        number = next(self._numbers)
        self._note(
            {"t": "phase", "phase": name, "span": f"{self._token}-{number}", "start": start, "end": end}
        )

    def end(
        self, outcome: str = "completed", *, error: str | None = None, exit_code: int | None = None
    ) -> None:
        """This rank's attempt is over (completed, failed, cancelled, preempted, resized). Nothing follows."""
        with self._lock:
            self._note({"t": "end", "outcome": outcome, "error": error, "exit_code": exit_code})
            self._ended = True
        self._spool.close()
        atexit.unregister(self._at_exit)

    def abandon(self) -> None:
        """In a forked child: this recorder is the parent's. Takes no lock."""
        self._lock = threading.RLock()
        self._ended = True
        self._spool.abandon()
        atexit.unregister(self._at_exit)

    def open_phase(self, fields: dict[str, Any]) -> Opened | None:
        """Begin a span; `close_phase` ends it."""
        try:
            with self._lock:
                now = self._clock.now()
                opened = Opened(fields, f"{self._token}-{next(self._numbers)}", now)
                self._write(encode({"t": "open", **fields, "span": opened.span, "start": now[0]}))
                if not fields.get("overlapped"):
                    self._block(now[1])
                return opened
        except Exception as error:  # noqa: BLE001
            self._failed(error)
            return None

    def close_phase(self, opened: Opened | None, raised: str | None = None) -> None:
        """End a span; `raised` names the exception that ended it."""
        if opened is None:
            return
        try:
            with self._lock:
                now = self._clock.now()
                end, jump = span_end(opened.start, now)
                if not opened.fields.get("overlapped"):
                    self._unblock(now[1])
                    if self._left is None and self._begun is None:
                        self._prepared = now
                        self._count_from(now[1])
                record = {
                    "t": "phase",
                    **opened.fields,
                    "span": opened.span,
                    "start": opened.start[0],
                    "end": end,
                }
                extra = {
                    name: value for name, value in (("clock_jump_ns", jump), ("raised", raised)) if value
                }
                if extra:
                    record["attrs"] = {**(opened.fields.get("attrs") or {}), **extra}
                self._write(encode(record))
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def open_wait(self) -> Waiting | None:
        """Begin a wait for input; None inside another one."""
        try:
            with self._lock:
                self._waits += 1
                if self._waits > 1:
                    return None
                now = self._clock.now()
                self._write(b'{"t":"wait","at":%d}' % now[0])
                return Waiting(now, self._blocked_until(now[1]))
        except Exception as error:  # noqa: BLE001
            self._failed(error)
            return None

    def close_wait(self, waiting: Waiting | None) -> None:
        """End a wait: short ones are summed until the mark, a long one is a span where it was."""
        try:
            with self._lock:
                self._waits -= 1
                if waiting is None:
                    return
                now = self._clock.now()
                end, jump = span_end(waiting.start, now)
                taken = self._blocked_until(now[1]) - waiting.blocked
                waited = max(0, end - waiting.start[0] - taken)
                if waited < LONG_WAIT_NS or self._depth:
                    self._wait_ns += waited
                    if self._left is None and self._begun is None and self._prepared is None:
                        self._begun = waiting.start  # nothing else tells where the first step begins
                        self._blocked_at_mark = waiting.blocked
                    self._write(b'{"t":"waited","ns":%d}' % waited)
                    return
                self._blocked += waited
                record = {
                    "t": "phase",
                    "phase": DATA_STALL,
                    "span": f"{self._token}-{next(self._numbers)}",
                    "start": waiting.start[0],
                    "end": end,
                }
                self._write(encode({**record, "attrs": {"clock_jump_ns": jump}} if jump else record))
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def _mark(self, n: int, samples: int | None) -> None:
        now = self._clock.now()
        blocked = self._blocked_until(now[1])
        start = self._left or self._begun or self._prepared or now
        end, jump = span_end(start, now)
        since = blocked - self._blocked_at_mark if start is not now else 0
        wait = min(self._wait_ns, end - start[0])
        head = b'{"t":"step","n":%d,"start":%d,"end":%d,"wait":%d,"blocked":%d' % (
            n,
            start[0],
            end,
            wait,
            since,
        )
        tail = b"}" if samples is None else b',"samples":%d}' % int(samples)
        self._write(head + b',"jump":%d' % jump + tail if jump else head + tail)
        self._left, self._wait_ns, self._blocked_at_mark = now, 0, blocked

    def _count_from(self, mono: int) -> None:
        """The first step begins here: phases and waits before it are none of it."""
        self._wait_ns, self._blocked_at_mark = 0, self._blocked_until(mono)

    def _checkpoint(
        self, kind: str, step: int, samples: int | None, mode: str | None, size: int | None
    ) -> None:
        self._note(
            {"t": "checkpoint", "kind": kind, "step": step, "cursor": samples, "mode": mode, "bytes": size}
        )

    def _note(self, record: dict[str, Any]) -> None:
        try:
            with self._lock:
                record["at"] = self._clock.now()[0]
                self._write(encode({name: value for name, value in record.items() if value is not None}))
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def _write(self, payload: bytes) -> None:
        if not self._ended:
            self._spool.append(payload)

    def _block(self, mono: int) -> None:
        if self._depth == 0:
            self._blocked_since = mono
        self._depth += 1

    def _unblock(self, mono: int) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._blocked += mono - self._blocked_since

    def _blocked_until(self, mono: int) -> int:
        return self._blocked + (mono - self._blocked_since if self._depth else 0)

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        self._spool.error = repr(error)[:200]

    def _at_exit(self) -> None:
        raised = getattr(
            sys, "last_value", None
        )  # set by the interpreter for an exception that nobody caught
        self._note({"t": "exit", "error": _text(raised) if raised is not None else None})


def phase_fields(
    name: str, *, overlapped: bool, work_key: str | None, step: int | None, attrs: dict[str, Any] | None
) -> dict[str, Any]:
    """The fields of a span, as its records and the wire name them."""
    fields: dict[str, Any] = {"phase": name}
    if overlapped:
        fields["overlapped"] = True
    more = {"work_key": work_key, "step": step, "attrs": attrs}
    return fields | {name: value for name, value in more.items() if value is not None}


def _text(error: BaseException) -> str:
    import traceback  # noqa: PLC0415 - costs a tenth of a second on a cold disk, and is needed once at most

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(lines)[-ERROR_CHARACTERS:]
