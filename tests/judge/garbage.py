"""Events that the wire accepts and no sane collector would send: extreme numbers, spans that cross attempts,
ends before starts, two nodes that speak for one rank.

Nothing is known about their books but the laws: they balance, and delivery does not matter.
"""

from __future__ import annotations

import random
from typing import Any

Fields = dict[str, Any]
T0 = 1_772_452_800 * 10**9
SECOND = 10**9
HUGE = 2**63 - 1
PHASES = (
    "image_pull", "rendezvous", "compile_cold", "step_new_data", "evaluation", "checkpoint_save_block",
    "checkpoint_save_async", "drain_and_teardown", "data_stall", "step_replayed", "hang", "unaccounted",
    "queue_wait", "gang_assembly", "requeue_wait", "never heard of",
)  # fmt: skip
TYPES = (
    "attempt_start", "attempt_start", "attempt_end", "phase", "phase", "phase_open", "steps", "steps", "steps",
    "checkpoint", "heartbeat", "fault", "job",
)  # fmt: skip
OUTCOMES = ("completed", "failed", "cancelled", "preempted", "resized", "unknown")


def garbage(seed: int) -> list[Fields]:
    """Up to 25 events of two jobs, with node, incarnation and seq."""
    chance = random.Random(f"garbage-{seed}")
    return [_event(chance, number) for number in range(chance.randint(1, 25))]


def _event(chance: random.Random, number: int) -> Fields:
    kind = chance.choice(TYPES)
    seq = number if chance.random() < 0.95 else chance.randint(1, 9)
    event: Fields = {
        "type": kind,
        "node": chance.choice(("n1", "n2")),
        "incarnation": chance.choice("ab"),
        "seq": seq,
    }
    if chance.random() < 0.05:
        event["clock_offset_ns"] = chance.choice((2**61, -(2**62), -SECOND, 5000 * SECOND))
    if kind != "heartbeat":
        event["job"] = chance.choice(("j", "j", "k"))
    if kind not in ("job", "heartbeat"):
        event["attempt"] = chance.choice("012")
    if kind in ("phase", "phase_open", "steps"):
        start = _stamp(chance)
        event |= {"rank": chance.choice((0, 1, 2, 99_999)), "start": start}
        if kind != "phase_open":
            event["end"] = max(start, _stamp(chance))
    elif kind != "job":
        event["ts"] = _stamp(chance)
    return event | _MORE[kind](chance)


def _stamp(chance: random.Random) -> int:
    odd = (T0, T0 + chance.randint(0, 10**18), 946_684_800 * SECOND, HUGE)
    return chance.choice((T0 + chance.randint(-100, 4000) * SECOND,) * 12 + odd)


def _some(chance: random.Random, fields: Fields) -> Fields:
    """About a third of the fields."""
    return {name: value for name, value in fields.items() if chance.random() < 0.3}


def _start(chance: random.Random) -> Fields:
    count = chance.choice((1, 8, 2_000_000))
    fields = {
        "gpus": count,
        "gpus_by_node": {"n1": 8},
        "world_size": count,
        "released_between": chance.random() < 0.5,
    }
    return _some(chance, fields)


def _end(chance: random.Random) -> Fields:
    return {
        "outcome": chance.choice(OUTCOMES),
        **_some(chance, {"exit_code": 1, "signal": 9, "error": "boom"}),
    }


def _phase(chance: random.Random) -> Fields:
    fields = {"overlapped": True, "aborted": True, "step": chance.choice((0, 5, HUGE)), "work_key": "k"}
    return {"phase": chance.choice(PHASES), "span": chance.choice("stu"), **_some(chance, fields)}


def _steps(chance: random.Random) -> Fields:
    first = chance.choice((0, 1, 5, 10, 2**62, HUGE))
    fields: Fields = {
        "unit": chance.choice(("optimizer_step", "micro_batch", "epoch")),
        "per_optimizer_step": chance.choice((1, 3, 4, 2**31 - 1)),
        "data_wait": chance.choice((0, SECOND, HUGE)),
    }
    if chance.random() < 0.4:
        cursor = chance.choice((0, 64, 2**62))
        fields |= {"cursor_start": cursor, "cursor_end": max(cursor, chance.choice((0, 64, 640, HUGE)))}
    return {
        "first": first,
        "last": max(first, chance.choice((0, 9, 20, 2**62, HUGE))),
        **_some(chance, fields),
    }


def _checkpoint(chance: random.Random) -> Fields:
    return {"step": chance.choice((0, 9, HUGE)), "kind": chance.choice(("save", "load"))}


def _heartbeat(chance: random.Random) -> Fields:
    named = [{"job": "j", "attempt": chance.choice("012"), "ranks": [0, 1]}]
    return {"jobs": named} if chance.random() < 0.8 else {}


def _fault(chance: random.Random) -> Fields:
    kinds = ("xid", "nccl", "controller", "preemption", "other", "oom")
    return {"kind": chance.choice(kinds), "code": chance.choice((79, 45, "x", 2**31 - 1))}


def _job(chance: random.Random) -> Fields:
    return _some(chance, {"team": chance.choice("ab"), "model": chance.choice("ab")})


_MORE = {
    "attempt_start": _start,
    "attempt_end": _end,
    "phase": _phase,
    "phase_open": _phase,
    "steps": _steps,
    "checkpoint": _checkpoint,
    "heartbeat": _heartbeat,
    "fault": _fault,
    "job": _job,
}
