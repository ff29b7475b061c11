"""Interval sets and the sweep against Python's own sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet_ett.core import cover
from fleet_ett.core.intervals import IntervalSet

bounds = st.tuples(st.integers(-20, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1]))
several = st.lists(bounds, max_size=12)


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def made(pairs: list[tuple[int, int]]) -> IntervalSet:
    return IntervalSet.of(ints([a for a, _ in pairs]), ints([b for _, b in pairs]))


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {x for a, b in pairs for x in range(a, b)}


@given(several)
def test_a_union_is_disjoint_sorted_and_complete(pairs: list[tuple[int, int]]) -> None:
    """The set holds exactly the points of its intervals, none of which touch."""
    found = made(pairs)
    assert points(list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))) == points(pairs)
    assert (found.starts[1:] > found.ends[:-1]).all()
    assert found.size() == len(points(pairs))


@given(several, several)
def test_union_of_two_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    """`|` is the set of both, whatever the order."""
    assert made(one) | made(other) == made(one + other) == made(other) | made(one)


@given(several, st.lists(bounds, min_size=1, max_size=6))
def test_covered_counts_the_points_inside(pairs: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    """How much of each question lies in the set, and which parts."""
    found = made(pairs)
    expected = [len(points([q]) & points(pairs)) for q in asked]
    assert found.covered(ints([a for a, _ in asked]), ints([b for _, b in asked])).tolist() == expected
    assert [sum(b - a for a, b in found.within(*q)) for q in asked] == expected


@given(several)
def test_a_set_survives_json(pairs: list[tuple[int, int]]) -> None:
    """What is stored between attempts comes back equal."""
    assert IntervalSet.from_json(made(pairs).to_json()) == made(pairs)


@given(st.lists(st.tuples(bounds, st.integers(0, 5)), max_size=12))
def test_the_sweep_finds_the_smallest_key_at_each_instant(items: list[tuple[tuple[int, int], int]]) -> None:
    """Against a look at every interval at every instant."""
    starts, ends = ints([a for (a, _), _ in items]), ints([b for (_, b), _ in items])
    found, low = cover.smallest(starts, ends, ints([k for _, k in items]))
    for at, key in zip(found.tolist(), low.tolist(), strict=False):
        here = [k for (a, b), k in items if a <= at < b]
        assert key == min(here, default=cover.NOTHING)
