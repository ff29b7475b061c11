"""Each scenario folder through the offline reader, also duplicated and out of order."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.core.ledger import Books
from fleet_ett.replay import document, replay_wire
from fleet_ett.replay.wire_file import WireFile
from tests.scenarios import FOLDER, Scenario, all_scenarios, read_scenario
from tests.scenarios.compare import differences, restricted, unbalanced

if TYPE_CHECKING:
    from collections.abc import Iterable

SCENARIOS = all_scenarios()
DAY_NS = 86_400 * 10**9
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)


def answer(lines: Iterable[str], as_of: int | None) -> dict[str, Any]:
    """What `fleet-ett replay --json` prints."""
    return document(replay_wire(lines, as_of=as_of))


@each_scenario
def test_books_are_as_expected(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    """The ledger holds what expected.json says, and balances to the nanosecond."""
    actual = answer(scenario.lines, scenario.as_of)
    assert not unbalanced(actual)
    found = differences(scenario.expected, actual)
    if found and request.config.getoption("--accept"):
        scenario.accept(restricted(actual, scenario.expected))
        return
    assert not found, "\n".join(found)


@each_scenario
@pytest.mark.parametrize("seed", range(3))
def test_delivery_does_not_matter(scenario: Scenario, seed: int) -> None:
    """Any order and any repetition give the same books; only the count of duplicates differs."""
    chance = random.Random(f"{scenario.name}-{seed}")
    lines = [line for line in scenario.lines if line.strip()]
    again = [line for line in lines if chance.random() < 0.3]
    shuffled = lines + again
    chance.shuffle(shuffled)
    clean, other = answer(lines, scenario.as_of), answer(shuffled, scenario.as_of)
    refused = WireFile(again)
    accepted = sum(1 for _ in refused.events())
    for name in ("jobs", "fleet", "conflicts"):
        assert clean[name] == other[name]
    assert clean["duplicates"] + accepted == other["duplicates"]
    reasons = Counter(one["reason"] for one in clean["quarantined"])
    assert reasons + Counter(one.reason for one in refused.quarantined) == Counter(
        one["reason"] for one in other["quarantined"]
    )


def test_every_split_into_batches_gives_the_same_timeline() -> None:
    """B35: events in any order, in three deliveries, and asked for in between."""
    scenario = read_scenario(FOLDER / "b35_arrival_is_not_occurrence")
    events = list(WireFile(scenario.lines).events())
    expected: Any = None
    for seed in range(60):
        chance = random.Random(seed)
        chance.shuffle(events)
        cuts = sorted(chance.sample(range(len(events) + 1), 2))
        books = Books()
        for batch in (events[: cuts[0]], events[cuts[0] : cuts[1]], events[cuts[1] :]):
            books.add(batch)
            for job in books.jobs():
                books.ledger(job)
        ledger = books.ledger("job-1")
        actual = [list(one.segments.rows()) for one in ledger.attempts]
        expected = expected or actual
        assert expected == actual


def test_days_are_utc() -> None:
    """B42: a phase over midnight gives 10 min to the one and 20 min to the other UTC day."""
    scenario = read_scenario(FOLDER / "b42_phase_over_midnight")
    books = replay_wire(scenario.lines).books.jobs["job-1"]
    days: Counter[int] = Counter()
    for attempt in books.attempts:
        for cell in attempt.cells:
            if cell.heading == "evaluation":
                days[cell.hour // DAY_NS] += cell.wall_ns
    assert [600 * 10**9, 1200 * 10**9] == [ns for _, ns in sorted(days.items())]


@each_scenario
def test_folders_are_complete(scenario: Scenario) -> None:
    """Each folder says what it is about and expects something."""
    about = (scenario.folder / "about.md").read_text()
    assert about.startswith("# ")
    assert "Right: " in about
    assert scenario.expected
