"""Whatever the wire accepts, the books balance, every figure is finite, and delivery does not matter."""

from __future__ import annotations

import json
import random

import pytest

from fleet_ett.replay import document, replay_wire
from tests.judge.garbage import T0, garbage
from tests.scenarios.compare import unbalanced

CHUNK = 50


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_any_events_make_books_that_balance(first: int) -> None:
    """No exception, no negative amount, no ratio outside 0..1, no NaN; the same from any order."""
    for seed in range(first, first + CHUNK):
        chance = random.Random(seed)
        lines = [json.dumps(event) for event in garbage(seed)]
        as_of = chance.choice((None, None, T0 + 2000 * 10**9, T0 - 10**12))
        answer = document(replay_wire(lines, as_of=as_of))
        json.dumps(answer, allow_nan=False)
        assert not unbalanced(answer), seed
        for job in answer["jobs"].values():
            assert job["ett"] is None or 0 <= job["ett"] <= 1, seed
            assert min(job["goodput"].values()) >= 0, seed
            assert abs(job["goodput"]["total_s"] - job["wall_ns"] / 1e9) <= 1e-6 * job["wall_ns"] / 1e9, seed
        again = lines + lines[:3]
        chance.shuffle(again)
        assert answer["jobs"] == document(replay_wire(again, as_of=as_of))["jobs"], seed
