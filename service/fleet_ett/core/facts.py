"""Events of one attempt put in order: who held what when, as columns the sweep can work on.

Nothing is judged here; the file only reads the wire's fields, corrects stamps by the clock offset,
unites what several nodes said, and pairs opened spans with the phases that close them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ett_collector.wire import MAX_GPUS
from fleet_ett.core import spans as span_columns
from fleet_ett.core import steps as step_columns
from fleet_ett.core.past import NOTHING, Past
from fleet_ett.core.taxonomy import LOAD, STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ett_collector.wire import Event
    from fleet_ett.core.identity import Delivered
    from fleet_ett.core.spans import Spans
    from fleet_ett.core.steps import Steps

    Ints = NDArray[np.int64]

CLOCK_SKEW_NS = 1_000_000_000  # an offset from here on is shown as a quality flag


def at(event: Event) -> int:
    """The event's own time on the service's clock (ns)."""
    return (event.start or 0) - event.clock_offset_ns


@dataclass(slots=True)
class Facts:
    """What was said of one attempt. Times ns on the service's clock."""

    job: str
    attempt: str
    start: int
    end: int | None
    released: bool
    gpus: int
    world_size: int
    nodes: tuple[str, ...]
    spans: Spans
    steps: Steps
    phase_names: list[str]
    work_keys: list[str]
    node_names: list[str]
    ends: list[Event]
    checkpoints: list[Event]
    loads: list[tuple[int, int]]  # (ns, step) of loaded checkpoints
    faults: list[Event]
    beat_at: Ints  # heartbeats that name the attempt, sorted
    beats: dict[str, list[int]]  # node -> when its heartbeats came, sorted
    last_word: dict[str, int]  # node -> newest stamp of what it said of the attempt, heartbeats apart
    last_seen: dict[str, int]  # the same with heartbeats
    newest: int
    labels: dict[str, str]
    flags: list[dict[str, Any]] = field(default_factory=list)

    def loaded_step(self, before: int) -> int | None:
        """The step of the checkpoint that was loaded last before a moment (ns), if any said so."""
        known = [(stamp, step) for stamp, step in self.loads if stamp <= before]
        return max(known)[1] if known else None

    def flag(self, name: str, **where: object) -> None:
        """Note a quality flag of the closed list (accounting.md, section 12)."""
        one = {
            "flag": name,
            "attempt": self.attempt,
            **{k: v for k, v in where.items() if v is not None},
        }
        if one not in self.flags:
            self.flags.append(one)


def beats_of(event: Event, job: str, attempt: str) -> bool:
    """Whether a heartbeat names that attempt. One that names no job speaks for its node alone."""
    jobs: Sequence[Mapping[str, object]] = event.body.get("jobs", ())
    return any(one["job"] == job and one["attempt"] == attempt for one in jobs)


def attempt_start(events: Iterable[Event]) -> tuple[int, bool]:
    """When an attempt's hardware was allocated (ns) and whether it had been released before.

    The earliest `attempt_start`; without one the first event of the attempt stands for it.
    """
    starts = [event for event in events if event.type == "attempt_start"]
    if not starts:
        return min((at(event) for event in events if event.start is not None), default=0), True
    return min(map(at, starts)), all(event.body.get("released_between", True) for event in starts)


def collect(job: str, attempt: str, delivered: Delivered, past: Past = NOTHING) -> Facts:
    """The facts of one attempt from its de-duplicated events; `past`: what it had reported before them."""
    kinds: dict[str, list[Event]] = {}
    for event in delivered.events:
        kinds.setdefault(event.type, []).append(event)
    own = [event for event in delivered.events if event.attempt == attempt]
    beats = [event for event in kinds.get("heartbeat", ()) if beats_of(event, job, attempt)]
    # codes in the order of the names, so that no tie is ever decided by the order of delivery
    nodes = {
        name: i
        for i, name in enumerate(
            sorted({e.node for e in delivered.events} | {b.node for b in delivered.batches} | set(past.nodes))
        )
    }
    steps = step_columns.gather(kinds.get("steps", []), delivered.batches, nodes)
    spoken = [*kinds.get("phase", ()), *kinds.get("phase_open", ())]
    names = sorted({event.body["phase"] for event in spoken} | {STEP})
    phase_names = {name: i for i, name in enumerate(names)}
    keys = sorted({event.body["work_key"] for event in spoken if "work_key" in event.body})
    work_keys = {key: i for i, key in enumerate(keys)}
    flags: list[dict[str, Any]] = []
    spans = span_columns.gather(
        kinds.get("phase", []),
        kinds.get("phase_open", []),
        nodes,
        phase_names,
        work_keys,
        flags,
    )
    starts = kinds.get("attempt_start", [])
    ends = sorted(
        kinds.get("attempt_end", []),
        key=lambda event: (at(event), event.node, event.seq),
    )
    begun = [at(event) for event in starts]
    inferred = not begun
    if inferred:
        seen = [at(event) for event in own if event.start is not None] + [at(event) for event in beats]
        begun = [*seen, int(steps.start.min())] if len(steps) else seen
        begun += [] if past.start is None else [past.start]
    last_word = _last_word(own, delivered, past.last_word)
    all_beats = _beats(kinds.get("heartbeat", []), past.beats)
    last_seen = {n: max(last_word.get(n, 0), all_beats.get(n, [0])[-1]) for n in last_word | all_beats}
    facts = Facts(
        job=job,
        attempt=attempt,
        start=min(begun, default=0),
        end=at(ends[-1]) if ends else None,
        released=all(event.body.get("released_between", True) for event in starts),
        gpus=0,
        world_size=0,
        nodes=(),
        spans=spans,
        steps=steps,
        phase_names=list(phase_names),
        work_keys=list(work_keys),
        node_names=list(nodes),
        ends=ends,
        checkpoints=sorted(
            kinds.get("checkpoint", []),
            key=lambda e: (at(e), e.body["step"], e.body["kind"]),
        ),
        loads=[*_loads(kinds), *([past.load] if past.load else ())],
        faults=sorted(kinds.get("fault", []), key=lambda e: (at(e), e.node, e.seq)),
        beat_at=np.array(sorted(map(at, beats)), dtype=np.int64),
        beats=all_beats,
        last_word=last_word,
        last_seen=last_seen,
        newest=max(last_seen.values(), default=0),
        labels=_labels(starts),
    )
    for one in (*flags, *past.flags):
        facts.flag(
            one["flag"],
            rank=one.get("rank"),
            node=one["node"],
            what=one.get("what"),
            amount=one.get("amount"),
        )
    if inferred:
        facts.flag("inferred_start")
    _hardware(facts, starts, beats, past.ranks.members())
    _quality(facts, delivered, own, past.skews)
    return facts


def _loads(kinds: dict[str, list[Event]]) -> list[tuple[int, int]]:
    events = [e for e in kinds.get("checkpoint", ()) if e.body["kind"] == "load"]
    events += [e for e in kinds.get("phase", ()) if e.body["phase"] == LOAD and "step" in e.body]
    return [(at(event), event.body["step"]) for event in events]


def _beats(events: list[Event], before: Mapping[str, int]) -> dict[str, list[int]]:
    out = {node: [stamp] for node, stamp in before.items()}
    for event in sorted(events, key=at):
        out.setdefault(event.node, []).append(at(event))
    return out


def _labels(starts: list[Event]) -> dict[str, str]:
    out: dict[str, str] = {}
    for event in sorted(starts, key=lambda e: (at(e), e.node, e.seq), reverse=True):
        out.update(event.body.get("labels", {}))
    return out


def _hardware(facts: Facts, starts: list[Event], beats: list[Event], before: Iterable[int]) -> None:
    """GPUs, world size and nodes, united over what each node said of the attempt."""
    by_node: dict[str, int] = {}
    names: set[str] = set()
    for event in starts:
        names.update(event.body.get("nodes", ()))
        for node, count in event.body.get("gpus_by_node", {}).items():
            by_node[node] = max(by_node.get(node, 0), count)
    totals = [event.body["gpus"] for event in starts if "gpus" in event.body]
    sizes = [event.body["world_size"] for event in starts if "world_size" in event.body]
    stepping = facts.steps.rank[facts.steps.leading()]
    ranks = {*np.unique(facts.spans.rank).tolist(), *stepping.tolist(), *before}
    if not ranks:
        ranks = {
            rank
            for beat in beats
            for one in beat.body["jobs"]
            if one["job"] == facts.job and one["attempt"] == facts.attempt
            for rank in one["ranks"]
        }
    facts.world_size = max(sizes) if sizes else max(len(ranks), 1)
    if totals:
        facts.gpus = max(totals)
    elif by_node:
        facts.gpus = min(sum(by_node.values()), MAX_GPUS)
    else:
        facts.gpus = facts.world_size
        facts.flag("inferred_start", what="gpus", amount=facts.gpus)
    facts.nodes = tuple(sorted(names | set(by_node) | set(facts.node_names)))


def _last_word(events: list[Event], delivered: Delivered, before: Mapping[str, int]) -> dict[str, int]:
    seen = dict(before)
    for event in events:
        stamp = event.end if event.end is not None else event.start
        if stamp is not None:
            stamp -= event.clock_offset_ns
            if stamp > seen.get(event.node, 0):
                seen[event.node] = stamp
    for batch in delivered.batches:
        stamp = int(batch.end.max()) - batch.clock_offset_ns
        seen[batch.node] = max(stamp, seen.get(batch.node, 0))
    return seen


def _quality(facts: Facts, delivered: Delivered, own: list[Event], before: Mapping[str, int]) -> None:
    for event in delivered.conflicted:
        facts.flag("conflict", rank=event.rank, node=event.node)
    skews = dict(before)
    sources = [(e.node, e.clock_offset_ns) for e in own if e.clock_offset_ns]
    for node, offset in sources + [(b.node, b.clock_offset_ns) for b in delivered.batches]:
        if abs(offset) >= CLOCK_SKEW_NS and abs(offset) > abs(skews.get(node, 0)):
            skews[node] = offset
    for node, offset in sorted(skews.items()):
        facts.flag("clock_skew", node=node, amount=offset)
    for event in own:
        if "cut" in event.body:
            facts.flag("name_cut", node=event.node, what=", ".join(event.body["cut"]))
        jump = event.body.get("attrs", {}).get("clock_jump_ns")
        if jump:
            facts.flag("clock_jump", rank=event.rank, node=event.node, amount=jump)
