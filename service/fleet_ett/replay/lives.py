"""The lives of a job in a goodput timeline: entries put in order of time and cut at each restart.

The vocabulary only knows starts (of the job, of steps) and pairs of marks. A life is what the wire calls
an attempt: a `job_start` opens one, so does a step number that goes back (a rollback within the process),
so does the end of an elastic wait. A life that is cut off ends with its last entry: what came after it is
silence, and the step in flight was never finished.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# kinds of marks -> phase of the taxonomy; `custom` and `data_loading` are looked at apart
PHASES = {
    "tpu_init": "device_init",
    "training_prep": "plugin_init",
    "elastic_reinit": "rendezvous",
}
PAIRED = (*PHASES, "data_loading", "custom", "elastic_wait")


class Entry(NamedTuple):
    """One entry of a timeline; `t` and `lasting` in ns, `t` since the timeline's zero."""

    t: int
    kind: str
    step: int | None
    name: str | None
    lasting: int


@dataclass(slots=True)
class Span:
    """A phase of a life; `end` is None while no entry has closed it. Times ns since the timeline's zero."""

    phase: str
    start: int
    end: int | None = None
    step: int | None = None
    overlapped: bool = False
    source: str = ""


@dataclass(slots=True)
class Life:
    """One attempt; `kept`: took over the hardware of the one before, `told`: its start is known."""

    start: int
    told: bool
    kept: bool = False
    steps: list[Span] = field(default_factory=list)
    phases: list[Span] = field(default_factory=list)
    end: int | None = None
    outcome: str | None = None
    seen_until: int = 0

    def first_step(self) -> int | None:
        """The number of the first step begun."""
        return self.steps[0].step if self.steps else None

    def open_step(self) -> Span | None:
        """The step in flight."""
        return self.steps[-1] if self.steps and self.steps[-1].end is None else None


def _rank(entry: Entry) -> int:
    """Order at one instant: ends first, then the job's end and start, then other starts, then steps."""
    if entry.kind in ("job_end", "job_start"):
        return 1 if entry.kind == "job_end" else 2
    if entry.kind.endswith("_end"):
        return 0
    return 4 if entry.kind == "step_start" else 3


def split(entries: Iterable[Entry]) -> list[Life]:
    """The lives that the entries tell of, in order; the same from any order of delivery."""
    ordered = sorted(entries, key=lambda e: (e.t, _rank(e), e.kind, e.name or "", e.step or 0, e.lasting))
    walk = _Walk()
    for index, entry in enumerate(ordered):
        walk.take(entry, ordered[index + 1 :] if entry.kind == "elastic_wait_start" else ())
    return walk.lives


@dataclass(slots=True)
class _Walk:
    """Where a walk over the entries stands; `waiting` between the marks of an elastic wait."""

    lives: list[Life] = field(default_factory=list)
    waiting: bool = False

    def take(self, entry: Entry, following: Sequence[Entry]) -> None:
        if entry.kind == "job_start":
            self._cut()
            self.lives.append(Life(entry.t, told=True))
            self.waiting = False
        elif entry.kind == "elastic_wait_start":
            self._pause(entry, following)
        elif entry.kind.endswith("_end") and entry.kind != "elastic_wait_end" and self._open() is None:
            return
        elif entry.kind == "job_end":
            self._finish(entry.t, "completed")
        else:
            self._note(entry)
        if self.lives:
            life = self.lives[-1]
            life.seen_until = max(life.seen_until, entry.t + entry.lasting)

    def _open(self) -> Life | None:
        return self.lives[-1] if self.lives and self.lives[-1].end is None else None

    def _cut(self) -> None:
        """End the open life where it was last heard of."""
        life = self._open()
        if life is not None:
            life.end, life.outcome = max(life.seen_until, life.start), "failed"

    def _finish(self, t: int, outcome: str) -> None:
        life = self._open()
        if life is None:
            return
        step = life.open_step()
        if step is not None:
            step.end = t
        life.end, life.outcome = t, outcome

    def _pause(self, entry: Entry, following: Sequence[Entry]) -> None:
        """An elastic wait ends a life. Its step is done if the next one follows it, else it was in flight."""
        life, self.waiting = self._open(), True
        if life is None:
            return
        step = life.open_step()
        resumed = next((e.step for e in following if e.kind == "step_start"), None)
        if step is not None and resumed is not None and resumed <= (step.step or 0):
            life.end, life.outcome = entry.t, "resized"
        else:
            self._finish(entry.t, "resized")

    def _note(self, entry: Entry) -> None:
        life = self._open()
        if life is None:
            life = Life(entry.t, told=self.waiting, kept=self.waiting)
            self.lives.append(life)
            self.waiting = False
        if entry.kind == "step_start":
            self._step(life, entry)
        elif entry.kind == "ckpt_save":
            self._lasting(life, entry, "checkpoint_save_block")
        elif entry.kind == "ckpt_restore":
            self._lasting(life, entry, "checkpoint_load")
        elif entry.kind.endswith("_start"):
            life.phases.append(_opened(life, entry))
        elif entry.kind.endswith("_end"):
            _close(life, entry)

    def _lasting(self, life: Life, entry: Entry, phase: str) -> None:
        life.phases.append(Span(phase, entry.t, entry.t + entry.lasting, entry.step, source=entry.kind))

    def _step(self, life: Life, entry: Entry) -> None:
        number = entry.step or 0
        if life.steps and number <= (life.steps[-1].step or 0):
            self._cut()
            life = Life(entry.t, told=True, kept=True)
            self.lives.append(life)
        step = life.open_step()
        if step is not None:
            step.end = entry.t
        life.steps.append(Span("step_new_data", entry.t, step=number))


def _opened(life: Life, entry: Entry) -> Span:
    kind = entry.kind.removesuffix("_start")
    source = f"{kind}/{entry.name}"
    if kind == "custom":
        return Span(entry.name or "custom", entry.t, source=source)
    if kind == "data_loading":
        phase = "data_stall" if life.steps else "data_warmup"
        return Span(phase, entry.t, overlapped=entry.name == "overlapped", source=source)
    return Span(PHASES[kind], entry.t, source=source)


def _close(life: Life, entry: Entry) -> None:
    """Close the oldest open span of the entry's kind and name; an end without a start says nothing."""
    source = f"{entry.kind.removesuffix('_end')}/{entry.name}"
    for span in life.phases:
        if span.source == source and span.end is None:
            span.end = entry.t
            return
