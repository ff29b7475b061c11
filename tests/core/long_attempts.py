"""Random jobs whose attempts go on for long: healthy for the most part, and with everything that happens to jobs.

Times are small integers of ns after T0, as in `strategies.py`: a step window takes some 10, an attempt some 500.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.core.strategies import JOB, T0, event

if TYPE_CHECKING:
    from ett_collector.wire import Event

LOOP = (
    "checkpoint_save_block",
    "evaluation",
    "recompile_in_loop",
    "data_stall",
    "my_own_phase",
    "model_build",
)


@dataclass
class Plan:
    """One attempt as it runs: `at` is the time, `step` the next step, `habits` what happens in it."""

    chance: random.Random
    name: str
    start: int
    at: int
    step: int
    ranks: int
    habits: set[str]
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    begun: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # rank -> (start, first step) of its window
    gone: set[int] = field(default_factory=set)
    spans: int = 0

    def odds(self, share: float) -> bool:
        return self.chance.random() < share

    def has(self, habit: str, share: float) -> bool:
        """Whether something happens now, if it is a habit of this attempt."""
        return habit in self.habits and self.odds(share)

    def say(self, rank: int, kind: str, /, **fields: Any) -> None:
        node = f"n{rank // 2}"
        self.told.append((node, {"type": kind, "attempt": self.name, "rank": rank, **fields}))

    def steppers(self) -> list[int]:
        some = range(1) if "one steps" in self.habits else range(self.ranks)
        return [rank for rank in some if rank not in self.gone]


HABITS = {  # how likely an attempt has them
    "samples": 0.4, "one steps": 0.15, "unaligned": 0.6, "waits": 0.4, "saves": 0.6, "uploads": 0.4, "pauses": 0.4,
    "rollbacks": 0.25, "spans": 0.5, "opens": 0.3, "flights": 0.3, "beats": 0.6, "node beats": 0.3, "faults": 0.3,
    "jumps": 0.1, "poison": 0.07, "deaths": 0.07, "silence": 0.07, "mixed samples": 0.04, "left open": 0.04,
    "conflicts": 0.06, "late joins": 0.1, "gaps": 0.3, "overlaps": 0.1, "offsets": 0.2, "unit": 0.1, "flaws": 0.15,
    "twice closed": 0.07, "hidden start": 0.1, "no sizes": 0.3, "early": 0.1, "restated": 0.2,
}  # fmt: skip


def long_job(seed: int, length: int = 500) -> list[Event]:
    """The events of one job, by seed."""
    chance = random.Random(f"long-{seed}")
    told: list[tuple[str, dict[str, Any]]] = []
    at, step = 0, chance.choice((0, 1, 100))
    for index in range(chance.choice((1, 1, 2, 3))):
        habits = {name for name, share in HABITS.items() if chance.random() < share}
        plan = Plan(chance, f"a{index}", at, at, step, chance.randint(1, 5), habits)
        _run(plan, chance.randint(length // 2, length))
        told += plan.told
        at = plan.at + chance.choice((0, 10, 60))
        step = max(plan.step - chance.choice((0, 3, 20, 60)), 0)
    offsets = {f"n{n}": chance.choice((0, 0, 7, -7, 2_000_000_000)) for n in range(9)}
    made = []
    for seq, (node, one) in enumerate(told):
        offset = offsets[node] + (chance.choice((0, 0, 1, -1)) if one.pop("wavers", False) else 0)
        made.append(event(one.pop("seq", seq), node, one, offset))
    if chance.random() < 0.2:
        made += chance.sample(made, min(5, len(made)))
    return made


def _run(plan: Plan, length: int) -> None:
    _start(plan)
    end = plan.at + length
    while plan.at < end:
        _round(plan)
    _flush(plan, plan.steppers())
    if plan.odds(0.8):
        outcome = plan.chance.choice(("completed", "failed", "failed", "preempted", "unknown"))
        if plan.has("spans", 0.5):
            _everyone(plan, "drain_and_teardown", 12)
        for rank in {0, plan.ranks - 1} if plan.odds(0.3) else {0}:
            moment = plan.at + plan.chance.choice((0, 0, 3, 40, -15))
            told = {"type": "attempt_end", "attempt": plan.name, "ts": moment, "outcome": outcome}
            plan.told.append((f"n{rank // 2}", told))
        plan.at += plan.chance.choice((0, 3, 40))


def _start(plan: Plan) -> None:
    for rank in range(plan.ranks):
        if "hidden start" in plan.habits or (rank % 2 and plan.odds(0.7)):
            continue
        told = {"type": "attempt_start", "attempt": plan.name, "ts": plan.at + rank % 3}
        if "no sizes" not in plan.habits:
            told |= {
                "gpus": 8,
                "world_size": plan.ranks,
                "nodes": [f"n{n}" for n in range((plan.ranks + 1) // 2)],
            }
        plan.told.append((f"n{rank // 2}", told))
    for rank in range(plan.ranks):
        at = plan.at - (8 if "early" in plan.habits else 0)
        for phase in ("image_pull", "process_group_init", "checkpoint_load", "compile_cold"):
            length = plan.chance.randint(0, 12)
            more = {"step": plan.step} if phase == "checkpoint_load" else {}
            if phase == "compile_cold":
                more = {"work_key": plan.chance.choice(("k1", "k2"))}
            plan.say(rank, "phase", phase=phase, start=at, end=at + length, **more)
            at += length
        plan.begun[rank] = at, plan.step
    plan.at = max(at for at, _ in plan.begun.values())
    if "late joins" in plan.habits and plan.ranks > 1:
        late = plan.ranks - 1
        plan.begun[late] = plan.at + plan.chance.randint(0, 200), plan.step


def _round(plan: Plan) -> None:
    """A few steps of all ranks, and what happens between them."""
    count, each = plan.chance.randint(1, 5), plan.chance.randint(1, 4)
    plan.step += count
    plan.at += count * each
    steppers = plan.steppers()
    if "unaligned" in plan.habits:
        _flush(plan, [rank for rank in steppers if plan.odds(0.6)])
    else:
        _flush(plan, steppers)
    for rank in range(plan.ranks):
        _asides(plan, rank)
    if plan.has("saves", 0.2):
        _flush(plan, steppers)
        _everyone(plan, "checkpoint_save_block", 8, one=plan.odds(0.3))
        for rank in range(1 if plan.odds(0.5) else plan.ranks):
            plan.say(rank, "checkpoint", step=max(plan.step - 1, 0), kind="save", ts=plan.at - rank % 2)
    if plan.has("pauses", 0.05):
        _flush(plan, steppers)
        plan.at += plan.chance.choice((3, 15, 30, 70))
        _open_windows(plan)
    if plan.has("rollbacks", 0.04):
        _flush(plan, steppers)
        plan.step = max(plan.step - plan.chance.randint(1, 30), 0)
        _open_windows(plan)
    if plan.has("spans", 0.08):
        _flush(plan, steppers)
        _everyone(plan, plan.chance.choice(LOOP), 15, one=plan.odds(0.4))
    if plan.has("deaths", 0.03) and plan.ranks > 1:
        _die(plan, plan.chance.randrange(plan.ranks))
    if plan.has("silence", 0.03) and plan.ranks > 1:
        rank = plan.chance.randrange(plan.ranks)
        plan.gone ^= {rank}
        plan.begun[rank] = plan.at, plan.step
    _node(plan)


def _flush(plan: Plan, ranks: list[int]) -> None:
    """Report the windows of those ranks up to now."""
    for rank in ranks:
        start, first = plan.begun[rank]
        if plan.step > first and plan.at > start and rank not in plan.gone:
            _window(plan, rank, start, first)
            plan.begun[rank] = plan.at, plan.step
            if plan.has("gaps", 0.1):
                plan.begun[rank] = plan.at + 1, plan.step
            if plan.has("overlaps", 0.2):
                plan.begun[rank] = plan.at - 2, plan.step


def _window(plan: Plan, rank: int, start: int, first: int) -> None:
    last = plan.step - 1
    told: dict[str, Any] = {"first": first, "last": last, "start": start, "end": plan.at}
    if "samples" in plan.habits and not plan.has("mixed samples", 0.05):
        told |= {"cursor_start": first * 3, "cursor_end": (last + 1) * 3}
    if plan.has("waits", 0.3):
        told["data_wait"] = plan.chance.randint(0, 6)
    if plan.has("jumps", 0.03):
        told["last"] += 2
    if plan.has("poison", 0.03):
        told["last"] = 2**60
    if "unit" in plan.habits:
        told["unit"] = "optimizer_step"
    if plan.has("flights", 0.2):
        plan.spans += 1
        plan.say(rank, "phase_open", phase="step_new_data", start=start + 1, span=f"f{plan.spans}")
    plan.say(rank, "steps", wavers="offsets" in plan.habits, **told)
    if plan.has("conflicts", 0.02):
        plan.told.append((plan.told[-1][0], {**plan.told[-1][1], "seq": len(plan.told) + 10**6}))
        plan.told.append(
            (plan.told[-1][0], {**plan.told[-1][1], "start": start + plan.chance.choice((0, 1, 40, -60))})
        )
        plan.told[-1][1]["end"] = max(plan.told[-1][1]["start"], plan.told[-1][1]["end"])
    if plan.has("restated", 0.02):
        plan.say(rank, "steps", **told)


def _open_windows(plan: Plan) -> None:
    for rank in range(plan.ranks):
        plan.begun[rank] = max(plan.at, plan.begun[rank][0] if "late joins" in plan.habits else 0), plan.step


def _everyone(plan: Plan, phase: str, longest: int, *, one: bool = False) -> None:
    """A phase of all ranks, or of one."""
    ranks = [plan.chance.randrange(plan.ranks)] if one else range(plan.ranks)
    length = plan.chance.randint(1, longest)
    for rank in ranks:
        more: dict[str, Any] = {}
        if plan.odds(0.2):
            more["work_key"] = plan.chance.choice(("k1", "k3"))
        end = plan.at + plan.chance.randint(0, length)
        if plan.has("opens", 0.5):
            plan.spans += 1
            more["span"] = f"s{plan.spans}"
            plan.say(rank, "phase_open", phase=phase, start=plan.at, **more)
        if plan.has("twice closed", 0.2) and "span" in more:
            plan.say(rank, "phase", phase=phase, start=plan.at, end=end + 2, **more)
        plan.say(rank, "phase", phase=phase, start=plan.at, end=end, **more)
    plan.at += length
    _open_windows(plan)


def _asides(plan: Plan, rank: int) -> None:
    """What a rank does beside its steps."""
    if plan.has("uploads", 0.1):
        length = plan.chance.choice((5, 30, 90))
        plan.say(
            rank, "phase", phase="checkpoint_upload", start=plan.at, end=plan.at + length, overlapped=True
        )
    if plan.has("left open", 0.02):
        plan.spans += 1
        phase = plan.chance.choice(("evaluation", "step_new_data", "checkpoint_upload"))
        overlapped = plan.odds(0.5)
        plan.say(rank, "phase_open", phase=phase, start=plan.at, span=f"o{plan.spans}", overlapped=overlapped)
    if plan.has("spans", 0.02):
        start = plan.at - plan.chance.randint(0, 9)
        plan.say(
            rank, "phase", phase=plan.chance.choice(LOOP), start=start, end=start + plan.chance.randint(0, 30)
        )
    if plan.has("flaws", 0.02):
        attrs = {"clock_jump_ns": plan.chance.randint(1, 2)}
        plan.say(rank, "phase", phase="x" * 250, start=plan.at, end=plan.at, attrs=attrs)


def _die(plan: Plan, rank: int) -> None:
    plan.gone.add(rank)
    start, _ = plan.begun[rank]
    plan.spans += 1
    told: dict[str, Any] = {
        "phase": plan.chance.choice(("step_new_data", "evaluation")),
        "start": min(start, plan.at),
    }
    told |= {"end": plan.at, "span": f"d{plan.spans}", "aborted": True, "overlapped": plan.odds(0.2)}
    plan.say(rank, "phase", **told)


def _node(plan: Plan) -> None:
    """Heartbeats and faults."""
    nodes = [f"n{n}" for n in range((plan.ranks + 1) // 2)]
    for node in nodes:
        if plan.has("beats", 0.7):
            jobs = [{"job": JOB, "attempt": plan.name, "ranks": [0]}]
            plan.told.append((node, {"type": "heartbeat", "ts": plan.at, "jobs": jobs}))
        if plan.has("node beats", 0.4):
            plan.told.append((node, {"type": "heartbeat", "ts": plan.at - 1}))
    if plan.has("faults", 0.04):
        named = {"job": JOB, "attempt": plan.name} if plan.odds(0.5) else {}
        node = plan.chance.choice([*nodes, "n8"] if named else nodes)
        plan.told.append((node, {"type": "fault", "kind": "xid", "code": 79, "ts": plan.at, **named}))


__all__ = ["T0", "long_job"]
