"""One event an identity, however it comes: as columns or by itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet_ett.core.identity import unique
from fleet_ett.core.steps import StepBatch

if TYPE_CHECKING:
    from ett_collector.wire import Event

# incarnation, rank, numbers in the order of their delivery; few numbers, so that they meet
COLUMNS = st.tuples(
    st.sampled_from("ab"), st.integers(0, 3), st.lists(st.integers(0, 30), min_size=1, max_size=6)
)


def batch(incarnation: str, rank: int, seqs: list[int]) -> StepBatch:
    """Step windows of those numbers; what they say follows from number and rank."""
    seq = np.array(seqs, dtype=np.int64)
    return StepBatch("j", "a", rank, "n", incarnation, seq, seq, seq + rank, seq * 10, seq * 10 + 9)


def events_of(items: list[Event | StepBatch]) -> list[Event]:
    return [event for one in items for event in (one.events() if isinstance(one, StepBatch) else [one])]


@given(st.lists(COLUMNS, max_size=6), st.lists(COLUMNS, max_size=2))
def test_columns_mean_the_same_as_single_events(
    columns: list[tuple[str, int, list[int]]], alone: list[tuple[str, int, list[int]]]
) -> None:
    """A batch stays columns where none of its identities stands anywhere twice, and only there."""
    batches = [batch(*one) for one in columns]
    items: list[Event | StepBatch] = [*batches, *events_of([batch(*one) for one in alone])]
    delivered, expected = unique(items), unique(events_of(items))
    got = [*delivered.events, *events_of([*delivered.batches])]
    assert sorted(map(repr, expected.events)) == sorted(map(repr, got))
    assert (expected.duplicates, expected.conflicts) == (delivered.duplicates, delivered.conflicts)
    counted = Counter((event.incarnation, event.seq) for event in events_of(items))
    kept = [one for one in batches if all(counted[one.incarnation, seq] == 1 for seq in one.seq.tolist())]
    assert [id(one) for one in kept] == [id(one) for one in delivered.batches]


def test_ranks_that_share_the_numbers_of_an_agent_stay_columns() -> None:
    """Their numbers lie within each other's."""
    ranks = [batch("a", rank, list(range(rank, 80, 8))) for rank in range(8)]
    delivered = unique(ranks)
    assert [] == delivered.events
    assert 8 == len(delivered.batches)
