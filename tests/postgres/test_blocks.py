"""A bulk batch means its events, whether they are checked and packed by columns or one by one."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ett_collector.wire import YEAR_2000_NS, expand
from fleet_ett.blocks import FEWEST, Block, block_of
from fleet_ett.ingest import _check_singly, decode_batch
from fleet_ett.postgres.block_rows import can_pack, digests, ids_of, pack, spans_of
from fleet_ett.postgres.event_rows import COLUMNS, Row, digest, rows_of

NOW = 1_764_400_000_000_000_000
LIMITS = [-1, 0, 1, 99_999, 100_000, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**70]
STAMPS = [YEAR_2000_NS - 1, YEAR_2000_NS, NOW, NOW + 86_400 * 10**9, NOW + 86_400 * 10**9 + 1]
GARBAGE = [None, True, 1.0, "", "x" * 201, "\0", "\ud800", [], {}]
NAME = st.sampled_from(["j", "a%d", "\u00e9\U0001f600", 'q"\\\n', "x" * 200]) | st.text(
    "ab", min_size=1, max_size=3
)
STAMP = st.integers(YEAR_2000_NS + 2**40, NOW)
NUMBER = st.integers(0, 2**31 - 1)
PHASE = {"phase": NAME, "work_key": NAME, "span": NAME, "overlapped": st.booleans(), "aborted": st.booleans()}
STEPS = dict.fromkeys(("first", "cursor_start", "data_wait", "slowest"), NUMBER) | {
    "last": st.integers(2**31, 2**63 - 1),
    "cursor_end": st.integers(2**31, 2**63 - 1),
    "per_optimizer_step": st.integers(1, 2**31 - 1),
    "unit": st.sampled_from(["optimizer_step", "micro_batch", "other"]),
}
FIELDS = {
    "phase": {**PHASE, "step": NUMBER},
    "steps": STEPS,
}
NEEDED = {"phase": {"phase"}, "steps": {"first", "last"}}
SHARED = {"job": NAME, "attempt": NAME, "rank": st.integers(0, 99_999), "start": STAMP, "end": STAMP}


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    """A batch of either type; sound, or with a few values that may be none."""
    kind = draw(st.sampled_from(sorted(FIELDS)))
    fields = FIELDS[kind]
    extra = draw(st.sets(st.sampled_from(sorted(fields)))) | NEEDED[kind]
    size = draw(st.integers(1, 5))
    out: dict[str, Any] = {"type": kind}
    columns: dict[str, list[Any]] = {"seq": draw(st.lists(NUMBER, min_size=size, max_size=size))}
    for name in draw(st.permutations([*SHARED, *sorted(extra)])):
        values = {**SHARED, **fields}[name]
        if draw(st.booleans()):
            out[name] = draw(values)
        else:
            columns[name] = draw(st.lists(values, min_size=size, max_size=size))
    if draw(st.booleans()) and {"start", "end"} <= columns.keys():
        pairs = [sorted(pair) for pair in zip(columns["start"], columns["end"], strict=True)]
        columns["start"], columns["end"] = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        odd = draw(st.sampled_from(LIMITS + STAMPS + GARBAGE))
        name = draw(st.sampled_from([*columns, *out, "node", "incarnation", "unknown"]))
        if name in columns and draw(st.booleans()):
            columns[name][draw(st.integers(0, size - 1))] = odd
        else:
            out[name] = odd
    return {**out, "columns": columns}


OFFSETS = st.sampled_from([0, 7, -(10**12), 2**62, -(2**62)])
WINDOW = {
    "type": "steps",
    "job": "j",
    "attempt": "a",
    "rank": 0,
    "columns": {
        "seq": [1, 2],
        "first": [1, 2],
        "last": [1, 2],
        "start": [NOW - 9] * 2,
        "end": [NOW, NOW - 10],
    },
}


def body(events: list[Any], bulk: list[Any], offset: int) -> dict[str, Any]:
    agent = {"node": "n1", "incarnation": "life-1"}
    return {"agent": agent, "clock_offset_ns": offset, "events": events, "batches": bulk}


@given(batches(), OFFSETS)
@example(WINDOW, 0)
def test_columns_give_the_events_and_the_reasons_of_rows(batch: dict[str, Any], offset: int) -> None:
    """Whatever stands in it: the same events, refused for the same reasons, at the same positions."""
    by_rows = decode_batch(body([], [], offset), now=NOW)
    _check_singly(by_rows, enumerate(expand(batch)), NOW)
    by_columns = decode_batch(body([], [batch], offset), now=NOW).singly()
    assert repr(by_rows) == repr(by_columns)
    bodies = [[list(event.body) for event in one.events] for one in (by_rows, by_columns)]
    assert bodies[0] == bodies[1]


@given(
    batches(), OFFSETS, st.lists(st.sampled_from([{}, None, {"type": "heartbeat", "ts": NOW}]), max_size=2)
)
@example(WINDOW, 0, [None])
def test_rows_alike_are_checked_like_any_other(
    batch: dict[str, Any], offset: int, others: list[object]
) -> None:
    """Enough rows of one form are checked by columns: nobody can tell but by the time it takes."""
    rows = [*others, *list(expand(batch)) * FEWEST, *others]
    by_columns = decode_batch(body(rows, [], offset), now=NOW).singly()
    by_rows = decode_batch(body([], [], offset), now=NOW)
    _check_singly(by_rows, enumerate(rows), NOW)
    assert repr(by_rows.refused) == repr(by_columns.refused)
    assert (by_rows.events, by_rows.positions) == (by_columns.events, by_columns.positions)


@given(batches(), OFFSETS)
@example({**WINDOW, "columns": {**WINDOW["columns"], "end": [NOW, NOW]}}, 0)
def test_a_block_packs_the_rows_of_its_events(batch: dict[str, Any], offset: int) -> None:
    block = block_of(
        batch, node="n1", incarnation="life-1", clock_offset_ns=offset, now=NOW, positions=range(5)
    )
    if block is None or not can_pack(block):
        return
    events = list(block.events())
    content = digests(block)
    assert [digest(event) for event in events] == content.tolist()
    jobs = {job: 1 + n for n, job in enumerate(sorted(set(block.values("job"))))}
    keys = sorted({(event.job or "", event.attempt or "") for event in events})
    attempts = {key: 1 + n for n, key in enumerate(keys)}
    singly = [row for event in events for row in rows_of(event, 3, jobs, attempts)]
    packed = unpack(pack(block, content, 3, ids_of(block, jobs), attempts))
    assert sorted(map(repr, singly)) == sorted(map(repr, packed))
    spans = {key: (first, last) for key, first, last in spans_of(block, block.corrected("start"))}
    for row, event in zip(singly, events, strict=True):
        first, last = spans[event.job or "", event.attempt or ""]
        assert first <= row.start_ns <= last


def test_a_sound_batch_is_a_block() -> None:
    """Else the two tests above would compare nothing."""
    sound = {**WINDOW, "columns": {**WINDOW["columns"], "end": [NOW, NOW]}}
    assert [Block] == [type(one) for one in decode_batch(body([], [sound], 0), now=NOW).blocks]


def unpack(data: bytes) -> list[Row]:
    """The rows of a binary COPY."""
    rows, at = [], 0
    while at < len(data):
        assert (len(COLUMNS),) == struct.unpack_from(">h", data, at)
        at += 2
        values: list[Any] = []
        for kind in COLUMNS.values():
            (size,) = struct.unpack_from(">i", data, at)
            piece = data[at + 4 : at + 4 + max(size, 0)]
            at += 4 + max(size, 0)
            if size < 0:
                values.append(None)
            else:
                values.append(piece.decode() if kind == "text" else int.from_bytes(piece, "big", signed=True))
        rows.append(Row(*values))
    return rows
