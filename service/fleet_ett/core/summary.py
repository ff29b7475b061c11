"""What one attempt comes to: small enough to keep, rich enough to put a job together from.

All times ns; pairs are [wall ns, GPU-ns] as exact integers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from fleet_ett.core.causes import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet_ett.core.segments import Segments

TAIL_HEADINGS = frozenset({"stall", "unknown", "aborted_step"})
SILENT_HEADINGS = frozenset({"stall", "unknown"})

Pair = list[int]


def _pair() -> Pair:
    return [0, 0]


@dataclass(slots=True)
class AttemptSummary:
    """The sums, moments and verdicts of one attempt.

    `tail`: from the last progress to the end of a failed attempt (detection); `gap`: to the next
    attempt; `restart`: this attempt's own start-up with the silence in it; `replay`: its replayed time.
    `restart` and `replay` are what the incident before this attempt cost. `silent_since`: since when a live
    attempt has shown neither progress nor a phase, for longer than the hang threshold, although heartbeats name
    it. `overlapped`: ns of background work by phase, booked nowhere. `components` holds lost time only.
    `held_up_by`: [node, rank, wall ns].
    """

    attempt: str
    index: int
    start: int
    end: int | None
    live: bool
    outcome: str
    gpus: int
    world_size: int
    nodes: list[str]
    settled_until: int
    wall_ns: int = 0
    gpu_ns: int = 0
    headings: dict[str, Pair] = field(default_factory=dict)
    phases: dict[str, Pair] = field(default_factory=dict)
    components: dict[str, Pair] = field(default_factory=dict)
    l2: dict[str, Pair] = field(default_factory=dict)
    overlapped: dict[str, int] = field(default_factory=dict)
    tail: Pair = field(default_factory=_pair)
    gap: Pair = field(default_factory=_pair)
    restart: Pair = field(default_factory=_pair)
    replay: Pair = field(default_factory=_pair)
    repeated_startup: Pair = field(default_factory=_pair)
    provisional_ns: int = 0
    first_step_at: int | None = None
    first_new_at: int | None = None
    last_progress_at: int | None = None
    silent_since: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    steps_productive: int = 0
    steps_replayed: int | None = 0
    samples_replayed: int = 0
    loaded_step: int | None = None
    durable_step: int | None = None
    saves: int = 0
    failure: Failure | None = None
    flags: list[dict[str, Any]] = field(default_factory=list)
    held_up_by: list[list[Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form, which shares its dicts and lists with the summary; `from_json` reads it back."""
        told = {name: getattr(self, name) for name in FIELDS}  # `asdict` would copy every pair
        if self.failure is not None:
            told["failure"] = asdict(self.failure)
        return told

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AttemptSummary:
        """The summary that `to_json` wrote (unknown fields of newer versions are left aside)."""
        values = {name: value for name, value in data.items() if name in FIELDS}
        if values.get("failure") is not None:
            failure = dict(values["failure"])
            failure["evidence"] = tuple(failure["evidence"])
            values["failure"] = Failure(**failure)
        return cls(**values)


FIELDS = tuple(f.name for f in fields(AttemptSummary))


def add_pair(pairs: dict[str, Pair], name: str, wall: int, gpu: int) -> None:
    """Add to the pair of that name."""
    pair = pairs.setdefault(name, [0, 0])
    pair[0] += wall
    pair[1] += gpu


def book(
    summary: AttemptSummary,
    segments: Segments,
    l2_of: Mapping[str, str],
    tail_from: int,
    first_step: int | None,
) -> None:
    """Fill the sums of a summary from its segments (gap included)."""
    for (heading, phase, component, repeated), (wall, gpu) in segments.sums().items():
        summary.wall_ns += wall
        summary.gpu_ns += gpu
        add_pair(summary.headings, heading, wall, gpu)
        add_pair(summary.phases, phase, wall, gpu)
        add_pair(summary.l2, l2_of[phase], wall, gpu)
        if heading != "productive":
            add_pair(summary.components, component, wall, gpu)
        if heading == "gap":
            summary.gap = [summary.gap[0] + wall, summary.gap[1] + gpu]
        if heading == "replay":
            summary.replay = [summary.replay[0] + wall, summary.replay[1] + gpu]
        if heading == "startup":
            summary.restart = [summary.restart[0] + wall, summary.restart[1] + gpu]
            if repeated:
                summary.repeated_startup = [
                    summary.repeated_startup[0] + wall,
                    summary.repeated_startup[1] + gpu,
                ]
    begun = tail_from if first_step is None else first_step
    for start, end, heading, gpus in _quiet(segments):
        if start >= tail_from and heading in TAIL_HEADINGS:
            summary.tail = [
                summary.tail[0] + end - start,
                summary.tail[1] + (end - start) * gpus,
            ]
        elif heading in SILENT_HEADINGS and end <= begun:
            summary.restart = [
                summary.restart[0] + end - start,
                summary.restart[1] + (end - start) * gpus,
            ]
    unsettled = segments.end > segments.settled_until
    reach = segments.end[unsettled] - segments.start[unsettled].clip(segments.settled_until)
    summary.provisional_ns = int(reach.sum())


def _quiet(segments: Segments) -> Iterable[tuple[int, int, str, int]]:
    codes = [i for i, label in enumerate(segments.labels) if label[0] in TAIL_HEADINGS]
    for code in codes:
        rows = (segments.label == code).nonzero()[0]
        for row in rows.tolist():
            yield (
                int(segments.start[row]),
                int(segments.end[row]),
                segments.labels[code][0],
                int(segments.gpus[row]),
            )
