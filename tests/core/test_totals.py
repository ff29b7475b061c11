"""A job's first attempts folded into sums give the books that all of its attempts give."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from fleet_ett.core.job import JobMeta, assemble, told_by_attempts
from fleet_ett.core.ledger import attribute
from fleet_ett.core.policy import Policy
from fleet_ett.core.totals import Totals
from tests.core.strategies import JOB, T0, jobs

if TYPE_CHECKING:
    from ett_collector.wire import Event

POLICY = Policy(hang_ns=25, heartbeat_ns=12, lateness_ns=40)
NOW = T0 + 700
META = JobMeta(conflict=True)


@given(jobs(), st.integers(0, 5))
def test_folded_attempts_are_as_good_as_all(events: list[Event], count: int) -> None:
    """Sums that went through JSON, and the attempts behind them."""
    summaries = [one.summary for one in attribute(events, now=NOW, policy=POLICY).attempts]
    whole = assemble(JOB, META, summaries, now=NOW)
    folded, count = Totals(), max(min(count, len(summaries) - 1), 0)
    for one, after in pairwise(summaries[: count + 1]):
        folded.add(one, after)
    told = json.loads(json.dumps(folded.to_json()))
    parts = assemble(JOB, META, summaries[count:], now=NOW, before=Totals.from_json(told))
    assert whole.sums_to_json() == parts.sums_to_json()
    assert whole.incidents[len(whole.incidents) - len(parts.incidents) :] == parts.incidents
    assert told == folded.to_json()


@given(jobs())
def test_what_sums_leave_out_is_told_by_the_attempts(events: list[Event]) -> None:
    """Flags, who held the job up, and how long recoveries took."""
    summaries = [one.summary for one in attribute(events, now=NOW, policy=POLICY).attempts]
    whole = assemble(JOB, META, summaries, now=NOW).to_json()
    more = told_by_attempts(summaries, meta_conflict=True)
    assert more == {name: (whole | whole["metrics"])[name] for name in more}
