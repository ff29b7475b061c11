"""What the wire takes, what it refuses, and with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ett_collector.wire import (
    DAY_NS,
    MAX_GPUS,
    MAX_NAME,
    MAX_TEXT,
    Event,
    Rejected,
    canonical,
    decode_event,
    expand,
    to_wire,
)

NOW = 1_772_452_800_000_000_000
STEPS: dict[str, Any] = {
    "seq": 7,
    "type": "steps",
    "job": "dlrm-7",
    "attempt": "slurm:8812:1",
    "rank": 0,
    "first": 100,
    "last": 119,
    "start": NOW,
    "end": NOW + 10,
}


def decode(raw: object, **context: Any) -> Event:
    return decode_event(raw, **{"node": "gpu-0017", "incarnation": "0f3c", "now": NOW, **context})


def refused(raw: object) -> str:
    with pytest.raises(Rejected) as reason:
        decode(raw)
    return str(reason.value)


def test_an_event_comes_back_as_it_was_sent() -> None:
    """`to_wire` gives the object that `decode_event` took."""
    assert to_wire(decode(STEPS)) == STEPS


def test_unknown_fields_are_kept_aside() -> None:
    """A newer agent's field is no error, and is not lost."""
    assert decode({**STEPS, "gradient_norm": 1.5}).body["gradient_norm"] == 1.5


def test_an_event_may_bring_its_own_incarnation() -> None:
    """The spool keeps an event's incarnation over an agent's restart."""
    assert decode({**STEPS, "incarnation": "before"}).incarnation == "before"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"first": 1.5}, "first must be an integer, not a float"),
        ({"first": -1}, "first is out of range: -1"),
        ({"last": 2**63}, "last is out of range: 9223372036854775808"),
        ({"first": "1"}, "first must be an integer, not a string"),
        ({"first": True}, "first must be an integer, not a boolean"),
        ({"last": 99}, "last lies before first"),
        ({"end": NOW - 1}, "end lies before start"),
        ({"start": float("nan")}, "start must be an integer, not a float"),
        ({"start": float("inf")}, "start must be an integer, not a float"),
        ({"start": "yesterday"}, "start must be an integer, not a string"),
        ({"start": 0}, "start lies before the year 2000: stamps are nanoseconds since the epoch"),
        ({"start": NOW // 10**9}, "start lies before the year 2000: stamps are nanoseconds since the epoch"),
        ({"start": NOW // 10**6}, "start lies before the year 2000: stamps are nanoseconds since the epoch"),
        ({"end": NOW + 2 * DAY_NS}, "end lies more than a day ahead of the service's time"),
        ({"rank": 100_000}, "rank is out of range: 100000"),
        ({"rank": None}, "steps needs rank"),
        ({"job": ""}, "job must not be empty"),
        ({"job": 7}, "job must be a string, not an integer"),
        ({"attempt": "a\0b"}, "attempt holds a NUL character"),
        ({"job": "\ud800"}, "job holds a lone surrogate"),
        ({"type": "step"}, "unknown type 'step'"),
        ({"type": ["steps"]}, "unknown type ['steps']"),
        ({"seq": None}, "seq must be an integer, not null"),
        ({"cursor_start": 9, "cursor_end": 8}, "cursor_end lies before cursor_start"),
    ],
)
def test_a_bad_field_is_refused_with_its_reason(change: dict[str, Any], reason: str) -> None:
    """One bad field refuses the event, and the words name the field."""
    assert refused({**STEPS, **change}) == reason


@pytest.mark.parametrize("raw", [None, 7, "event", ["event"], float("nan")])
def test_what_is_no_object_is_refused(raw: object) -> None:
    """Anything that JSON can be besides an object."""
    assert refused(raw).startswith("an event must be an object")


def test_no_gpus_are_refused() -> None:
    """An attempt that holds no GPU is a mistake of the sender."""
    start = {"seq": 1, "type": "attempt_start", "job": "j", "attempt": "a", "ts": NOW}
    assert refused({**start, "gpus": 0}) == "gpus is out of range: 0"


def test_more_gpus_than_there_are_are_refused() -> None:
    """GPU time of an hour has to fit 64 bits; no attempt holds two million."""
    start = {"seq": 1, "type": "attempt_start", "job": "j", "attempt": "a", "ts": NOW}
    assert decode({**start, "gpus": MAX_GPUS}).body["gpus"] == MAX_GPUS
    assert refused({**start, "gpus": MAX_GPUS + 1}) == "gpus is out of range: 2000001"
    assert refused({**start, "gpus_by_node": {"n1": 2**31}}) == "gpus_by_node.n1 is out of range: 2147483648"


def test_stamps_are_checked_on_the_services_clock() -> None:
    """A node whose clock runs two days ahead, and says so, is taken."""
    ahead = {**STEPS, "start": NOW + 2 * DAY_NS, "end": NOW + 2 * DAY_NS}
    assert decode(ahead, clock_offset_ns=2 * DAY_NS).start == NOW + 2 * DAY_NS


def test_offline_nothing_is_ahead() -> None:
    """Without a service's time only the past has a limit."""
    assert decode({**STEPS, "end": NOW + 9 * DAY_NS}, now=None).end == NOW + 9 * DAY_NS


def test_long_names_and_texts_are_cut_and_marked() -> None:
    """The cut is visible on the event."""
    named = decode({**STEPS, "job": "j" * 500})
    assert (named.job, named.body["cut"]) == ("j" * MAX_NAME, ["job"])
    fault = {"seq": 1, "type": "fault", "ts": NOW, "kind": "other", "text": "x" * (MAX_TEXT + 1)}
    assert (len(decode(fault).body["text"]), decode(fault).body["cut"]) == (MAX_TEXT, ["text"])


def test_free_text_is_made_storable() -> None:
    """NUL and lone surrogates in text that identifies nothing become U+FFFD."""
    fault = {"seq": 1, "type": "fault", "ts": NOW, "kind": "exception", "text": "a\0b\ud800"}
    assert decode(fault).body["text"].replace("\ufffd", "?").startswith("a?b?")
    assert "\0" not in decode({**STEPS, "detail": {"msg": "a\0b"}}).body["detail"]["msg"]


def test_a_fault_of_an_unknown_kind_is_other() -> None:
    """Agents may know kinds that the service does not."""
    assert decode({"seq": 1, "type": "fault", "ts": NOW, "kind": "cosmic_ray"}).body["kind"] == "other"


def test_bulk_rows_mean_the_same_as_single_events() -> None:
    """Constants once, columns for what varies."""
    batch = {"type": "steps", "job": "j", "columns": {"seq": [1, 2], "first": [0, 5]}}
    assert list(expand(batch)) == [
        {"type": "steps", "job": "j", "seq": 1, "first": 0},
        {"type": "steps", "job": "j", "seq": 2, "first": 5},
    ]


@pytest.mark.parametrize(
    "batch", [None, {}, {"columns": {}}, {"columns": {"a": [1], "b": []}}, {"columns": {"a": 1}}]
)
def test_a_broken_batch_is_refused(batch: object) -> None:
    """Columns of different lengths are nobody's rows."""
    with pytest.raises(Rejected):
        list(expand(batch))


def texts(value: object) -> list[str]:
    """All strings inside a JSON value, keys included."""
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(
    [*STEPS, "ts", "kind", "jobs", "gpus_by_node", "labels", "attrs", "text", "outcome", "nodes"]
)
kinds = st.sampled_from(
    ["job", "attempt_start", "attempt_end", "phase", "phase_open", "steps", "fault", "heartbeat"]
)


@given(st.dictionaries(fields, json_values, max_size=8), kinds)
def test_any_object_is_taken_or_refused(change: dict[str, Any], kind: str) -> None:
    """Whatever is sent: an event that can be stored as JSON, or a refusal; nothing else is raised."""
    try:
        event = decode({**STEPS, "ts": NOW, "type": kind, **change})
    except Rejected:
        return
    assert json.loads(canonical(event))["seq"] == event.seq
    assert json.dumps(to_wire(event), allow_nan=False)
    assert not any("\0" in text for text in texts(to_wire(event)))
    assert decode_event(to_wire(event), node=event.node, incarnation=event.incarnation) == event
