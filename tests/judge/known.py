"""What a plan says the books must be: pieces of the job's time, and what they add up to.

Also the few rows of the taxonomy that plans use, written from taxonomy.yaml and accounting.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# phase -> (owner, heading inside the loop); start phases in the order of start-up
START = {
    "node_prolog": ("hw_fleet", "startup"),
    "image_pull": ("container_image", "startup"),
    "launcher_start": ("launcher", "startup"),
    "rendezvous": ("launcher", "startup"),
    "process_import": ("trainer", "startup"),
    "device_init": ("os_driver", "startup"),
    "process_group_init": ("comms", "startup"),
    "model_build": ("trainer", "startup"),
    "sharding_plan": ("trainer", "startup"),
    "checkpoint_load": ("checkpoint", "startup"),
    "data_warmup": ("data", "startup"),
    "compile_cold": ("compiler", "compile"),
    "kernel_autotune": ("compiler", "compile"),
}
LOOP = {
    "data_stall": ("data", "data_wait"),
    "recompile_in_loop": ("compiler", "compile"),
    "checkpoint_save_block": ("checkpoint", "checkpoint"),
    "evaluation": ("model_owner", "evaluation"),
    "reshuffle": ("unowned", "custom:reshuffle"),
}
END = {"drain_and_teardown": ("launcher", "shutdown"), "publish_on_accelerator": ("publish", "publish")}
BOOKED = {
    "step_new_data": ("model_owner", "productive"),
    "step_replayed": ("checkpoint", "replay"),
    "step_aborted": ("checkpoint", "aborted_step"),
    "hang": ("observability", "stall"),
    "unaccounted": ("unowned", "unknown"),
    "requeue_wait": ("scheduler", "gap"),
}
ROWS = {**START, **LOOP, **END, **BOOKED}
# How far behind a phase is, smaller being further: start phases in their order, then any phase in the loop.
BEHIND = {**{phase: place for place, phase in enumerate(START)}, **dict.fromkeys(LOOP, len(START))}
BLAMED = frozenset({"startup", "data_wait", "checkpoint", "compile", "evaluation", "custom:reshuffle"})


def owner(phase: str) -> str:
    """The component that a phase belongs to."""
    return ROWS[phase][0]


def heading(phase: str, *, started: bool) -> str:
    """The heading of a phase, by whether the first step window is over."""
    return ROWS[phase][1] if started else "startup"


class Booked(NamedTuple):
    """A stretch of a job's time (ns): what it is booked as, the GPUs held, and who is furthest behind."""

    start: int
    end: int
    heading: str
    phase: str
    gpus: int
    holder: tuple[str, int] | None


def joined(pieces: Iterable[Booked]) -> list[Booked]:
    """Neighbours that differ in nothing but their bounds made one."""
    out: list[Booked] = []
    for piece in pieces:
        if out and out[-1].end == piece.start and out[-1][2:] == piece[2:]:
            out[-1] = out[-1]._replace(end=piece.end)
        else:
            out.append(piece)
    return out


@dataclass(slots=True)
class Incident:
    """One end of an attempt that was not completion. Costs in wall ns; `cause` None where none is certain."""

    kind: str
    component: str
    cause: str | None
    node: str | None
    tail: int = 0
    gap: int = 0
    restart: int = 0
    replay: int = 0


@dataclass(slots=True)
class KnownJob:
    """The books of one job as its plan lays them down, up to `at` (ns)."""

    at: int
    pieces: list[Booked] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    incidents: list[Incident] = field(default_factory=list)
    attempts: int = 0

    def lay(
        self, end: int, phase: str, booked: str, gpus: int, holder: tuple[str, int] | None = None
    ) -> None:
        """Book the time from where the job stands to `end`; `holder` is the (node, rank) furthest behind."""
        if end < self.at:
            msg = f"the plan goes back in time: {self.at} to {end}"
            raise ValueError(msg)
        if end > self.at:
            blamed = holder if booked in BLAMED else None
            self.pieces.append(Booked(self.at, end, booked, phase, gpus, blamed))
        self.at = end

    def sums(self, by: str, *, weight_gpus: bool = False) -> Counter[str]:
        """ns (or GPU-ns) by a field of the pieces."""
        out: Counter[str] = Counter()
        for piece in self.pieces:
            out[getattr(piece, by)] += (piece.end - piece.start) * (piece.gpus if weight_gpus else 1)
        return +out

    def direct(self) -> Counter[str]:
        """Lost ns by the component that the phase belongs to."""
        out: Counter[str] = Counter()
        for piece in self.pieces:
            if piece.heading != "productive":
                out[owner(piece.phase)] += piece.end - piece.start
        return out

    def induced(self) -> Counter[str]:
        """What the incidents cost, by the component that caused them."""
        out: Counter[str] = Counter()
        for one in self.incidents:
            out[one.component] += one.tail + one.gap + one.restart + one.replay
        return +out
