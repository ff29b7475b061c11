"""The core against random fleets whose books are known because they were built from them.

`pytest tests/test_judge.py --fleets 5000 --fleet-size 4` takes longer and finds more.
"""

from __future__ import annotations

from collections import Counter

import pytest

from fleet_ett.core.ledger import attribute_fleet
from fleet_ett.core.policy import Policy
from tests.judge.ends import FAILURES, PLANNED
from tests.judge.fleet_plan import plan_fleet
from tests.judge.known import ROWS
from tests.judge.verdict import decoded, timeline, verdict


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each fleet that was asked for."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--fleets")))


def test_books_of_a_random_fleet(seed: int, request: pytest.FixtureRequest) -> None:
    """Each ns of each job, and every sum, verdict and blame, is what the plan laid down."""
    plan = plan_fleet(seed, request.config.getoption("--fleet-size"))
    assert [] == verdict(plan)


@pytest.mark.parametrize("large", range(10_000, 10_006))
def test_books_of_a_larger_fleet(large: int) -> None:
    """More jobs, attempts, windows and nodes."""
    assert [] == verdict(plan_fleet(large, 4))


def test_exclusions_leave_the_rest_as_it_was() -> None:
    """Time that an operator takes out of the books is gone, and nothing else moves."""
    for number in range(40):
        plan = plan_fleet(number)
        starts = [piece.start for known in plan.jobs.values() for piece in known.pieces]
        low = min(starts) + (plan.now - min(starts)) // 3
        high = low + (plan.now - low) // 4
        policy = Policy(exclude=((low, high),))
        books = attribute_fleet(decoded(plan), now=plan.now, policy=policy)
        for job, known in plan.jobs.items():
            expected: Counter[str] = Counter()
            for piece in known.pieces:
                inside = max(0, min(piece.end, high) - max(piece.start, low))
                expected[piece.heading] += piece.end - piece.start - inside
            actual = {name: wall for name, (wall, _) in books.jobs[job].summary.headings.items() if wall}
            assert +expected == Counter(actual), number
            assert sum(expected.values()) == sum(p.end - p.start for p in timeline(books.jobs[job]))


def test_time_to_start_ends_with_the_first_new_data() -> None:
    """From the allocation to the first step on new data, where the first attempt got that far."""
    for number in range(60):
        plan = plan_fleet(number)
        books = attribute_fleet(decoded(plan), now=plan.now, policy=Policy())
        for job, known in plan.jobs.items():
            ended = next((one for one in known.pieces if one.heading == "gap"), None)
            first = next((one for one in known.pieces if one.heading == "productive"), None)
            if first is None or (ended is not None and ended.start < first.start) or known.attempts > 1:
                continue
            expected = first.start - known.pieces[0].start
            assert expected == books.jobs[job].summary.metrics["time_to_start_ns"], number


def test_plans_repeat() -> None:
    """One seed, one fleet: a difference can be looked at again."""
    assert plan_fleet(7) == plan_fleet(7)
    assert plan_fleet(7).events != plan_fleet(8).events


def test_plans_reach_everything() -> None:
    """All phases that the judge knows of, all kinds of ends and of events occur among its fleets."""
    plans = [plan_fleet(number) for number in range(150)]
    jobs = [known for plan in plans for known in plan.jobs.values()]
    assert set(ROWS) == {piece.phase for known in jobs for piece in known.pieces}
    causes = {one.cause for known in jobs for one in known.incidents}
    assert {end.cause for end in (*FAILURES, *PLANNED)} <= causes
    kinds = {event["type"] for plan in plans for event in plan.events}
    assert {
        "attempt_start",
        "attempt_end",
        "phase",
        "phase_open",
        "steps",
        "checkpoint",
        "heartbeat",
        "fault",
    } == kinds
    assert any(event.get("clock_offset_ns") for plan in plans for event in plan.events)
