"""Random events of small jobs for the property tests: not only well-behaved ones.

Times are small integers in ns after T0, so that bounds meet, nest, cross and repeat often.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ett_collector.wire import Event, decode_event

T0 = 1_772_452_800_000_000_000
JOB = "job-a"
NODES = ("n0", "n1", "n2")
PHASES = (
    "image_pull",
    "process_group_init",
    "checkpoint_load",
    "compile_cold",
    "recompile_in_loop",
    "data_stall",
    "checkpoint_save_block",
    "evaluation",
    "publish_on_accelerator",
    "drain_and_teardown",
    "queue_wait",
    "my_own_phase",
)
SPAN = 120  # ns that one attempt may reach over

times = st.integers(0, SPAN)


def event(seq: int, node: str, fields: dict[str, Any], offset: int = 0) -> Event:
    """One event through the wire's own check; times are relative to T0 on the service's clock."""
    shifted = {
        name: value + T0 + offset if name in ("ts", "start", "end") else value
        for name, value in fields.items()
    }
    raw = {"job": JOB, "seq": seq, **shifted}
    return decode_event(raw, node=node, incarnation=f"agent-{node}", clock_offset_ns=offset)


@st.composite
def spans(draw: st.DrawFn, rank: int, base: int) -> dict[str, Any]:
    """A phase or an open span of a rank."""
    start = draw(times)
    told: dict[str, Any] = {"type": "phase", "rank": rank, "phase": draw(st.sampled_from(PHASES))}
    told |= {"start": base + start, "end": base + start + draw(st.integers(0, 40))}
    if draw(st.booleans()):
        told["overlapped"] = draw(st.booleans())
    kind = draw(st.integers(0, 9))
    if kind == 0:
        told |= {"type": "phase_open", "span": draw(st.sampled_from(("s1", "s2")))}
        del told["end"]
    elif kind == 1:
        told |= {"phase": "step_new_data", "aborted": True}
    elif kind == 2:
        told |= {"phase": "step_new_data", "type": "phase_open", "span": "step"}
        del told["end"]
    elif kind == 3:
        told["span"] = draw(st.sampled_from(("s1", "s2")))
    elif kind == 4:
        told["work_key"] = draw(st.sampled_from(("k1", "k2")))
    return told


@st.composite
def windows(draw: st.DrawFn, rank: int, base: int) -> list[dict[str, Any]]:
    """Step windows of a rank, mostly one after the other, sometimes back in steps or with samples."""
    at, step = draw(st.integers(0, 40)), draw(st.integers(0, 20))
    sampled = draw(st.booleans())
    out: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 5))):
        count, length = draw(st.integers(1, 6)), draw(st.integers(0, 20))
        told = {"type": "steps", "rank": rank, "first": step, "last": step + count - 1}
        told |= {"start": base + at, "end": base + at + length}
        if sampled and draw(st.integers(0, 5)):
            told |= {"cursor_start": step * 3, "cursor_end": (step + count) * 3}
        if draw(st.integers(0, 3)) == 0:
            told["data_wait"] = draw(st.integers(0, 10))
        out.append(told)
        at += length + draw(st.sampled_from((0, 0, 0, 1, 5, -3)))
        step = max(step + count - draw(st.sampled_from((0, 0, 0, 0, 3, -4))), 0)
        at = max(at, 0)
    return out


@st.composite
def attempts(draw: st.DrawFn, name: str, base: int) -> list[tuple[str, dict[str, Any]]]:
    """One attempt's events as (node, fields)."""
    told: list[tuple[str, dict[str, Any]]] = []
    if draw(st.integers(0, 9)):
        told.append(("n0", {"type": "attempt_start", "ts": base, "gpus": draw(st.integers(1, 16))}))
        if draw(st.integers(0, 5)) == 0:
            told[-1][1]["released_between"] = False
    ranks = draw(st.integers(1, 3))
    for rank in range(ranks):
        node = NODES[rank]
        told += [(node, one) for one in draw(st.lists(spans(rank, base), max_size=4))]
        told += [(node, one) for one in draw(windows(rank, base))]
    for _ in range(draw(st.integers(0, 3))):
        beat = {
            "type": "heartbeat",
            "ts": base + draw(times),
            "jobs": [{"job": JOB, "attempt": name, "ranks": [0]}],
        }
        told.append((draw(st.sampled_from(NODES[:ranks])), beat))
    if draw(st.integers(0, 4)):
        outcome = draw(st.sampled_from(("completed", "failed", "preempted", "unknown")))
        told.append(("n0", {"type": "attempt_end", "ts": base + draw(times), "outcome": outcome}))
    return [(node, {"attempt": name, **one} if one["type"] != "heartbeat" else one) for node, one in told]


@st.composite
def jobs(draw: st.DrawFn) -> list[Event]:
    """All events of one small job, each identity once, in order of making."""
    told: list[tuple[str, dict[str, Any]]] = []
    base = 0
    for index in range(draw(st.integers(1, 3))):
        told += draw(attempts(f"a{index}", base))
        base += draw(st.sampled_from((30, 80, SPAN, 200)))
    offsets = {node: draw(st.sampled_from((0, 0, 7, -7))) for node in NODES}
    made = [event(seq, node, one, offsets[node]) for seq, (node, one) in enumerate(told)]
    return made or [event(0, "n0", {"type": "attempt_start", "attempt": "a0", "ts": 0, "gpus": 1})]
