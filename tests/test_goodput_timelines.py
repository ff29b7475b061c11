"""Timelines in the vocabulary of ml-goodput-measurement, and the right accounting of each.

`data/goodput_timelines.jsonl` says what that library computes (`peer_*`) and what is right
(`expected_our_view`, seconds). We agree with all of its rows; a row that we had to correct would carry
`our_view` and `why` beside them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from fleet_ett.replay import document, replay_goodput
from tests.scenarios.compare import unbalanced

TIMELINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "goodput_timelines.jsonl").read_text().splitlines()
]
SECOND = 1_000_000_000
each_timeline = pytest.mark.parametrize("timeline", TIMELINES, ids=lambda t: t["id"])


def books(timeline: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The books of the timeline's jobs by id, in order."""
    answer = document(replay_goodput([json.dumps(timeline)]))
    assert not answer["quarantined"]
    assert not unbalanced(answer)
    found: dict[str, dict[str, Any]] = answer["jobs"]
    return found


def nanoseconds(view: dict[str, float]) -> dict[str, int]:
    """The buckets of a view in whole nanoseconds (what is within another bucket is left out)."""
    return {name: round(s * SECOND) for name, s in view.items() if not name.startswith("of_which")}


@each_timeline
def test_goodput_view_is_right_to_the_nanosecond(timeline: dict[str, Any]) -> None:
    """Every bucket; where a name was used for two runs the row shows the second, and each stands alone."""
    expected = nanoseconds(timeline.get("our_view", timeline["expected_our_view"]))
    found = books(timeline)
    for job in found.values():
        actual = {name: value for name, value in nanoseconds(job["goodput"]).items() if name in expected}
        assert expected == actual
    assert len(found) == (2 if timeline["id"] == "reused_run_name" else 1)


@each_timeline
def test_buckets_add_up(timeline: dict[str, Any]) -> None:
    """The buckets are never negative and add up to the total, which is the ledger's wall time."""
    for job in books(timeline).values():
        buckets = nanoseconds(job["goodput"])
        total = buckets.pop("total_s")
        del buckets["lost_progress_s"]
        assert min(buckets.values()) >= 0
        assert total == sum(buckets.values()) == job["wall_ns"]


@each_timeline
def test_entries_may_come_in_any_order(timeline: dict[str, Any]) -> None:
    """Delivery is not occurrence: a shuffled and half repeated log gives the same books."""
    chance = random.Random(timeline["id"])
    shuffled = timeline["events"] + timeline["events"][::2]
    chance.shuffle(shuffled)
    assert books(timeline) == books({**timeline, "events": shuffled})


def test_lost_work_that_nothing_has_made_up_yet() -> None:
    """restart_from_zero: steps 0..3 were lost; by the time of the question 0 and 1 have been run again."""
    timeline = next(t for t in TIMELINES if t["id"] == "restart_from_zero")
    view = books(timeline)["restart_from_zero"]["goodput"]
    assert (12.0, 6.0) == (view["repeated_work_s"], view["lost_progress_s"])


def test_time_of_the_question_is_since_the_timelines_zero() -> None:
    """`--as-of` goes before the row's own `as_of_s`."""
    timeline = next(t for t in TIMELINES if t["id"] == "only_job_start")
    answer = document(replay_goodput([json.dumps(timeline)], as_of=30 * SECOND))
    assert answer["jobs"]["only_job_start"]["wall_ns"] == 30 * SECOND


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"id": "x"}',
        '{"id": "x", "events": [{"t": 0, "kind": "telepathy"}]}',
        '{"id": "x", "events": [{"t": -1, "kind": "job_start"}]}',
        '{"id": "x", "events": [{"t": "0", "kind": "job_start"}]}',
        '{"id": "x", "events": [{"t": NaN, "kind": "job_start"}]}',
        '{"id": "x", "events": [{"t": 1e300, "kind": "job_start"}]}',
        '{"id": "x", "events": [{"t": 0, "kind": "step_start", "step": null}]}',
        '{"id": "x", "events": [{"t": 0, "kind": ["step_start"]}]}',
        '{"id": "x", "events": [], "exclusions": [[1]]}',
    ],
)
def test_lines_that_are_no_timelines_are_quarantined(line: str) -> None:
    """By number and with a reason; the good neighbour is booked."""
    good = json.dumps(next(t for t in TIMELINES if t["id"] == "plain_run"))
    answer = document(replay_goodput([line, good]))
    assert [1] == [one["line"] for one in answer["quarantined"]]
    assert answer["quarantined"][0]["reason"]
    assert ["plain_run"] == list(answer["jobs"])
