"""The recorder of one trainer process: raw facts into its spool, nothing into the trainer's way.

No method raises (an error is counted in `errors`), takes part in the trainer's exceptions, waits for anybody or
talks to a network. A call stamps a record and puts it into a slot (`slots.py`); how long a step was and how much
of it was a wait is worked out by the agent (`agent/stopwatch.py`), what that means far from here.

Rare facts are notes (`t`): `head`, `name` (what a number stands for), `attrs` (of a span), `phase` (a span that
was measured elsewhere), `checkpoint`, `fault`, `end` (the trainer's word), `exit` (Python finalises without one)
and `lost` (records that could not be written); `told` (more of what the head says) and `notice` (for the agent's log).
"""

from __future__ import annotations

import atexit
import sys
from itertools import count
from time import monotonic_ns

from ett_collector.clock import CHECK_NS, Clock
from ett_collector.slots import BEGIN, CLOSE, NONE, OPEN, STEP, WAIT, WAITED
from ett_collector.spans import DataWait, Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ett_collector.spool import Spool

    Opened = tuple[int, int, int, int]  # span, name, step, mono of the begin

ERROR_CHARACTERS = 8000
MAX_NAMES = 512  # names, work keys and exceptions with a number: each file begins with all of them


class Recorder:
    """Records one rank of one attempt. `token` makes its span names unique in the attempt."""

    __slots__ = ("_check_at", "_clock", "_names", "_numbers", "_put", "_spool", "_token", "errors")

    def __init__(self, spool: Spool, token: str, clock: Clock) -> None:
        self.errors = 0
        self._spool = spool
        self._put = spool.put
        self._token = token
        self._clock = clock
        self._numbers = count(1).__next__
        self._names: dict[Any, int] = {}
        self._check_at = 0
        self._check(monotonic_ns(), first=True)
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
            mono = monotonic_ns()
            if mono > self._check_at:
                self._check(mono)
            self._put(STEP, mono, n, NONE if samples is None else samples)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
            self._failed(error)

    def step_begin(self, n: int, samples: int | None = None) -> None:
        """Step `n` begins: should the process die now, the books show a step in flight.

        `samples`: consumed by the whole job before it (needed once where nothing was loaded, usually 0).
        """
        try:
            mono = monotonic_ns()
            if mono > self._check_at:
                self._check(mono)
            self._put(BEGIN, mono, n, NONE if samples is None else samples)
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
        return Phase(lambda: self, (name, overlapped, work_key), step, attrs)

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

    def span(self, name: str, start: int, end: int, *, anchor: int | None = None) -> None:
        """A span that was measured elsewhere, between two stamps (wall ns).

        `anchor`: wall minus monotonic where they come of it; the clock may have been set since.
        """
        span = f"{self._token}-{self._numbers()}"
        told = {"t": "phase", "phase": name, "span": span, "start": start, "end": end, "anchor": anchor}
        self._note(told)

    def notice(self, hook: str, text: str) -> None:
        """Something that the agent should log: a hook has failed (`ett_collector.hooks`)."""
        self._note({"t": "notice", "hook": hook, "text": text[:500]})

    def tell(self, facts: dict[str, Any]) -> None:
        """What is known of job and attempt only now (fields of the head)."""
        self._note({"t": "told", "facts": facts})

    def takes_over(self) -> None:
        """Steps, waits and checkpoints are told from now on, also before the first of them: no hook tells any."""

    def end(
        self, outcome: str = "completed", *, error: str | None = None, exit_code: int | None = None
    ) -> None:
        """This rank's attempt is over (completed, failed, cancelled, preempted, resized). Nothing follows."""
        self._note({"t": "end", "outcome": outcome, "error": error, "exit_code": exit_code})
        self._spool.close()
        atexit.unregister(self._at_exit)

    def abandon(self) -> None:
        """In a forked child: this recorder is the parent's. Takes no lock."""
        self._spool.abandon()
        atexit.unregister(self._at_exit)

    def open_phase(self, phase: Phase) -> Opened | None:
        """Begin a span; `close_phase` ends it."""
        try:
            name = self._names.get(phase.key) or self._name(phase.key, phase.key)
            span = self._numbers()
            step = NONE if phase.step is None else phase.step
            if phase.attrs is not None:
                self._attrs(span, phase.attrs)
            mono = monotonic_ns()
            if mono > self._check_at:
                self._check(mono)
            self._put(OPEN, mono, span, name, step)
        except Exception as error:  # noqa: BLE001
            self._failed(error)
            return None
        return span, name, step, mono

    def close_phase(self, opened: Opened, raised: str | None = None) -> None:
        """End a span; `raised` names the exception that ended it."""
        try:
            mono = monotonic_ns()
            if mono > self._check_at:
                self._check(mono)
            why = (
                0 if raised is None else self._names.get(raised) or self._name(raised, (raised, False, None))
            )
            span, name, step, begun = opened
            self._put(CLOSE, mono, span, name, step, begun, why)
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def open_wait(self) -> int:
        """Begin a wait for input; `close_wait` takes the answer."""
        mono = monotonic_ns()
        try:
            if mono > self._check_at:
                self._check(mono)
            self._put(WAIT, mono)
        except Exception as error:  # noqa: BLE001
            self._failed(error)
        return mono

    def close_wait(self, begun: int) -> None:
        """End a wait: short ones are summed until the mark, a long one is a span where it was."""
        try:
            mono = monotonic_ns()
            if mono > self._check_at:
                self._check(mono)
            self._put(WAITED, mono, begun)
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def _name(self, key: Any, said: tuple[Any, Any, Any]) -> int:
        """The number of a name that had none. Its note is written before anything refers to it."""
        if len(self._names) >= MAX_NAMES:
            self._names = {}  # whatever comes again gets a new number
            self._spool.forget_again()
        number = self._numbers()
        named = zip(
            ("phase", "overlapped", "work_key"), (said[0], bool(said[1]) or None, said[2]), strict=True
        )
        fields = {field: value for field, value in named if value is not None}
        self._spool.note({"t": "name", "number": number, "fields": fields}, again=True)
        self._names[key] = number
        return number

    def _attrs(self, span: int, attrs: dict[str, Any]) -> None:
        try:
            self._spool.note({"t": "attrs", "span": span, "attrs": attrs})
        except Exception as error:  # noqa: BLE001 - the span is worth more than what is said of it
            self._failed(error)

    def _checkpoint(
        self, kind: str, step: int, samples: int | None, mode: str | None, size: int | None
    ) -> None:
        self._note(
            {"t": "checkpoint", "kind": kind, "step": step, "cursor": samples, "mode": mode, "bytes": size}
        )

    def _note(self, record: dict[str, Any]) -> None:
        try:
            mono = monotonic_ns()
            if mono > self._check_at:
                self._check(mono)
            record["mono"] = mono
            self._spool.note({name: value for name, value in record.items() if value is not None})
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def _check(self, mono: int, *, first: bool = False) -> None:
        """Look, once a second, whether the wall clock was set and the spool is still there."""
        self._check_at = mono + CHECK_NS
        if self._clock.follow() or first:
            self._spool.set_anchor(mono, self._clock.anchor)
        self._spool.inspect()

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        self._spool.error = repr(error)[:200]

    def _at_exit(self) -> None:
        raised = getattr(
            sys, "last_value", None
        )  # set by the interpreter for an exception that nobody caught
        self._note_exit(None if raised is None else error_text(raised), None)

    def _note_exit(self, error: str | None, exit_code: int | None) -> None:
        self._note({"t": "exit", "error": error, "exit_code": exit_code})


def error_text(error: BaseException) -> str:
    """What was raised, in its own words first, and then where: whoever cuts the text keeps the words."""
    import traceback  # noqa: PLC0415 - costs a tenth of a second on a cold disk, and is needed once at most

    words = "".join(traceback.format_exception_only(type(error), error))[:ERROR_CHARACTERS]
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return words + "".join(lines)[-ERROR_CHARACTERS:]
