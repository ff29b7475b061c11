"""A recorder that hooks write to beside the trainer: what the trainer says itself goes before what hooks see.

Within a phase of the trainer's no hook opens one in the same thread. The first `ett.step` ends the counting of
optimizer steps; the first counted step is held back until the next record, because the trainer may be about to
say it itself.
"""

from __future__ import annotations

import os
from _thread import get_ident
from time import monotonic_ns

from ett_collector.hooks import session
from ett_collector.null import _nobody
from ett_collector.recorder import Recorder
from ett_collector.slots import NONE, STEP
from ett_collector.spans import Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ett_collector.clock import Clock
    from ett_collector.recorder import Opened
    from ett_collector.spool import Spool

PROCESS_IMPORT = "process_import"
MODEL_BUILD = "model_build"
TEARDOWN = "drain_and_teardown"


class Watched(Recorder):
    """`says_*` is whether the trainer speaks for itself; `loaded` and `newest` are steps that it says it has done."""

    __slots__ = (
        "_held",
        "_importing",
        "_resumed",
        "_seen",
        "_told",
        "is_settled",
        "loaded",
        "newest",
        "says_saves",
        "says_steps",
        "says_waits",
        "thread",
    )

    def __init__(self, spool: Spool, token: str, clock: Clock) -> None:
        self.says_steps = self.says_waits = self.says_saves = False
        self.loaded: int | None = None
        self.newest: int | None = None
        self.thread = get_ident()  # that trains
        self.is_settled = False  # whether nothing was put off
        self._held: tuple[int, int] | None = None  # mono and number of the first step
        self._importing: Opened | None = None
        self._resumed: int | None = None
        self._told: dict[int, int] = {}  # spans of the trainer that are open -> thread
        self._seen: dict[int, tuple[int, str]] = {}  # spans of hooks that are open -> (thread, name)
        super().__init__(spool, token, clock)
        os.environ[session.MARK] = str(os.getpid())
        session.watch_exit()
        for hook, text in session.take_notices():
            self.notice(hook, text)

    def step(self, n: int, samples: int | None = None) -> None:
        """As `Recorder.step`; no step is counted from now on."""
        if not self.says_steps:
            self.says_steps, self._held = True, None
            self.settle()
        self.newest = n
        super().step(n, samples)

    def step_begin(self, n: int, samples: int | None = None) -> None:
        """As `Recorder.step_begin`; no step is counted from now on."""
        if not self.says_steps:
            self.says_steps, self._held = True, None
            self.settle()
        super().step_begin(n, samples)

    def checkpoint_committed(
        self, step: int, *, samples: int | None = None, mode: str | None = None, size: int | None = None
    ) -> None:
        """As `Recorder.checkpoint_committed`; hooks tell of none from now on."""
        self.says_saves = True
        super().checkpoint_committed(step, samples=samples, mode=mode, size=size)

    def checkpoint_loaded(self, step: int, *, samples: int | None = None) -> None:
        """As `Recorder.checkpoint_loaded`; steps are counted from there."""
        self.loaded = step
        super().checkpoint_loaded(step, samples=samples)

    def takes_over(self) -> None:
        """As `Recorder.takes_over`: a framework may step its optimizer only to make that one's state."""
        self.says_steps = self.says_waits = self.says_saves = True
        self._held = None
        self.loaded = self.loaded or 0

    def open_phase(self, phase: Phase) -> Opened | None:
        """A phase of the trainer's own: hooks open none within it."""
        self.settle()
        opened = super().open_phase(phase)
        if opened is not None and not phase.key[1]:
            self._told[opened[0]] = get_ident()
        return opened

    def close_phase(self, opened: Opened, raised: str | None = None) -> None:
        """Its end."""
        self._told.pop(opened[0], None)
        super().close_phase(opened, raised)

    def open_wait(self) -> int:
        """A wait that the trainer tells of: hooks tell of none from now on."""
        self.says_waits = True
        return super().open_wait()

    def end(
        self, outcome: str = "completed", *, error: str | None = None, exit_code: int | None = None
    ) -> None:
        """As `Recorder.end`."""
        self.settle()
        super().end(outcome, error=error, exit_code=exit_code)

    def begin(
        self,
        name: str,
        *,
        overlapped: bool = False,
        anywhere: bool = False,
        step: int | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> Opened | None:
        """A hook sees a span begin; None where the trainer tells of it, or it is open, or in another thread.

        `anywhere`: the thread that trains waits for this one.
        """
        if get_ident() == self.thread:
            self.settle()
        elif not (anywhere or overlapped):
            return None
        seen = (self.thread, name)
        # copies: another thread may open or close one meanwhile
        if not overlapped and (seen in list(self._seen.values()) or self.thread in list(self._told.values())):
            return None
        opened = super().open_phase(Phase(_nobody, (name, overlapped, None), step, attrs))
        if opened is not None and not overlapped:
            self._seen[opened[0]] = seen
        return opened

    def is_inside(self) -> bool:
        """Whether a span of a hook is open."""
        return bool(self._seen)

    def finish(
        self,
        opened: Opened,
        *,
        raised: BaseException | None = None,
        known: tuple[str, str | None] | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> None:
        """Its end. `known`: (name, work key) that are known only now; `attrs` likewise."""
        self._seen.pop(opened[0], None)
        if known is not None:
            key = (known[0], False, known[1])
            opened = (opened[0], self._names.get(key) or self._name(key, key), *opened[2:])
        if attrs:
            self._attrs(opened[0], attrs)
        super().close_phase(opened, None if raised is None else type(raised).__name__)

    def measured(self, name: str, start: int, end: int) -> None:
        """A hook knows only now what a time was (monotonic ns)."""
        if get_ident() == self.thread and self.thread not in list(self._told.values()):
            self.settle()
            anchor = self._clock.anchor
            self.span(name, start + anchor, end + anchor, anchor=anchor)

    def wait_begins(self) -> int:
        """A hook sees a wait for input begin; `close_wait` takes the answer."""
        self.settle()
        return super().open_wait()

    def count(self, n: int) -> None:
        """A hook has counted step `n`."""
        self.settle()
        super().step(n)

    def count_first(self, n: int) -> None:
        """The same for the first one, which the trainer may still say itself."""
        self._held, self.is_settled = (monotonic_ns(), n), False

    def is_holding(self) -> bool:
        """Whether the first step is still held back."""
        return self._held is not None

    def expect(self, n: int) -> None:
        """A hook sees step `n` begin."""
        super().step_begin(n)

    def committed(self, step: int, mode: str) -> None:
        """A hook saw a checkpoint become durable, in any thread."""
        if get_ident() == self.thread:
            self.settle()
        if not self.says_saves:
            super().checkpoint_committed(step, mode=mode)

    def resumed(self, step: int) -> None:
        """A hook saw the state after `step` being loaded."""
        if self.loaded is None and step != self._resumed:
            self._resumed = step
            super().checkpoint_loaded(step)

    def importing(self) -> None:
        """The interpreter has started, and imports begin."""
        phase = Phase(_nobody, (PROCESS_IMPORT, False, None))
        self._importing, self.is_settled = super().open_phase(phase), False

    def imported(self) -> None:
        """Something else than imports has begun."""
        if self._importing is not None:
            opened, self._importing = self._importing, None
            super().close_phase(opened)

    def settle(self) -> None:
        """Write what was put off: another record follows."""
        if self.is_settled:
            return
        self.is_settled = True
        try:
            held, self._held = self._held, None
            if held is not None:
                self._put(STEP, *held, NONE)
            self.imported()
            built = session.take_built()
            if built is not None:
                self.measured(MODEL_BUILD, *built)
        except Exception as error:  # noqa: BLE001 - as in all that a trainer calls
            self._failed(error)

    def _at_exit(self) -> None:
        self.settle()
        super()._at_exit()

    def _note_exit(self, error: str | None, exit_code: int | None) -> None:
        """The script is over, and nobody said how: it ran to its end, or into `sys.exit`."""
        super()._note_exit(error, session.exit_code() if error is None else exit_code)
        super().open_phase(Phase(_nobody, (TEARDOWN, False, None)))  # until the process is gone
