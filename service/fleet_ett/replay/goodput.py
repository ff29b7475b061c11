"""Timelines in the vocabulary of ml-goodput-measurement, turned into events of the wire.

So that the same core answers for them, and the `goodput` view can be laid beside what that library says.
The adapter judges nothing but where a life of the job begins and ends (`lives.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ett_collector.wire import Event, Rejected, decode_event
from fleet_ett.replay.lives import PAIRED, Entry, Life, Span, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.core.policy import Policy

ZERO_NS = 1_772_452_800_000_000_000  # where a timeline's zero stands: 2026-03-02T12:00:00Z
SECOND = 1_000_000_000
LONGEST_S = 4_000_000_000  # seconds that a timeline may last: stamps must fit 64 bits
NODE = "trainer"  # timelines name no node, and one process reports for all
KINDS = frozenset(
    {"job_start", "job_end", "step_start", "ckpt_save", "ckpt_restore"}
    | {f"{kind}_{mark}" for kind in PAIRED for mark in ("start", "end")}
)


@dataclass(slots=True)
class Timeline:
    """One timeline: its lives by job, when it is asked about, what is left out (ns since its zero)."""

    jobs: list[tuple[str, list[Life]]]
    as_of: int
    exclude: list[tuple[int, int]]
    duplicates: int

    def moment(self, as_of: int | None) -> int:
        """The time of the question in ns since the epoch; `as_of` in ns since the timeline's zero."""
        return ZERO_NS + (self.as_of if as_of is None else as_of)

    def policy(self, policy: Policy) -> Policy:
        """The policy with the timeline's exclusions added."""
        extra = tuple((ZERO_NS + start, ZERO_NS + end) for start, end in self.exclude)
        return replace(policy, exclude=policy.exclude + extra)

    def events(self) -> Iterator[Event]:
        """The timeline as checked events of the wire. Raises `Rejected` for what the wire refuses."""
        seq = 0
        for job, lives in self.jobs:
            for index, life in enumerate(lives):
                last = index == len(lives) - 1
                for fields in _life_events(life, outcome=life.outcome if last else _cut_short(life)):
                    seq += 1
                    raw = {"job": job, "attempt": str(index), "seq": seq, **fields}
                    yield decode_event(raw, node=NODE, incarnation=self.jobs[0][0])


def read_timeline(document: object) -> Timeline:
    """The timeline of one parsed JSON document. Raises `Rejected` with the reason when it is none."""
    if not isinstance(document, dict) or not isinstance(document.get("id"), str) or not document["id"]:
        msg = "a timeline is an object with an id"
        raise Rejected(msg)
    if not isinstance(document.get("events"), list):
        msg = "a timeline needs a list of events"
        raise Rejected(msg)
    entries = [_entry(raw) for raw in document["events"]]
    once = set(entries)
    newest = max((entry.t + entry.lasting for entry in entries), default=0)
    as_of = newest if document.get("as_of_s") is None else _ns("as_of_s", document["as_of_s"])
    exclude = [(_ns("exclusions", a), _ns("exclusions", b)) for a, b in _pairs(document.get("exclusions"))]
    return Timeline(_jobs(document["id"], split(once)), as_of, exclude, len(entries) - len(once))


def _ns(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LONGEST_S:
        msg = f"{name} must be seconds since the timeline's zero"
        raise Rejected(msg)
    return value * SECOND if isinstance(value, int) else round(value * SECOND)


def _pairs(value: object) -> list[tuple[object, object]]:
    if value is None:
        return []
    if not isinstance(value, list) or any(not isinstance(p, list) or len(p) != 2 for p in value):
        msg = "exclusions must be a list of [start, end]"
        raise Rejected(msg)
    return [(start, end) for start, end in value]


def _entry(raw: object) -> Entry:
    if not isinstance(raw, dict) or not isinstance(raw.get("kind"), str) or raw["kind"] not in KINDS:
        msg = f"unknown entry {raw!r:.80}"
        raise Rejected(msg)
    step, name = raw.get("step"), raw.get("name")
    if step is None and raw["kind"] == "step_start":
        msg = "step_start needs step"
        raise Rejected(msg)
    if step is not None and (type(step) is not int or step < 0):
        msg = f"step must be a whole number, not {step!r:.40}"
        raise Rejected(msg)
    if name is not None and not isinstance(name, str):
        msg = f"name must be a string, not {name!r:.40}"
        raise Rejected(msg)
    lasting = raw.get("dur")
    return Entry(
        _ns("t", raw.get("t")), raw["kind"], step, name, 0 if lasting is None else _ns("dur", lasting)
    )


def _jobs(name: str, lives: list[Life]) -> list[tuple[str, list[Life]]]:
    """Lives by job: one that starts over at the job's first step after a clean end is a run of its own."""
    jobs: list[tuple[str, list[Life]]] = []
    for life in lives:
        if jobs and not _starts_over(jobs[-1][1], life):
            jobs[-1][1].append(life)
        else:
            jobs.append((name if not jobs else f"{name}#{len(jobs) + 1}", [life]))
    return jobs


def _starts_over(before: list[Life], life: Life) -> bool:
    first = next((one.first_step() for one in before if one.steps), None)
    return before[-1].outcome == "completed" and first is not None and life.first_step() == first


def _cut_short(life: Life) -> str | None:
    """A job's end that the job survived was no completion; the timeline does not say what it was."""
    return "unknown" if life.outcome == "completed" else life.outcome


def _life_events(life: Life, outcome: str | None) -> Iterator[dict[str, Any]]:
    if life.told:
        yield {
            "type": "attempt_start",
            "ts": ZERO_NS + life.start,
            "gpus": 1,
            "world_size": 1,
            "released_between": not life.kept,
        }
    for number, span in enumerate([*life.phases, *life.steps]):
        yield from _span_events(span, f"{number}")
    if life.end is not None and outcome is not None:
        yield {"type": "attempt_end", "ts": ZERO_NS + life.end, "outcome": outcome}


def _span_events(span: Span, key: str) -> Iterator[dict[str, Any]]:
    begun: dict[str, Any] = {"rank": 0, "start": ZERO_NS + span.start}
    if span.end is None:
        fields = {"type": "phase_open", "phase": span.phase, "span": key, **begun}
        if span.step is not None:
            fields["step"] = span.step
        if span.overlapped:
            fields["overlapped"] = True
        yield fields
        return
    begun["end"] = ZERO_NS + span.end
    if span.phase == "step_new_data":
        yield {"type": "steps", "first": span.step, "last": span.step, **begun}
        return
    yield {"type": "phase", "phase": span.phase, "overlapped": span.overlapped, **begun}
    if span.source in ("ckpt_save", "ckpt_restore") and span.step is not None:
        kind = "save" if span.source == "ckpt_save" else "load"
        yield {"type": "checkpoint", "ts": begun["end"], "kind": kind, "step": span.step, "rank": 0}
