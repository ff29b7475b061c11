"""Each scenario folder through the whole service over three servers: the same numbers as on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet_ett.replay import document, replay_wire
from tests.scenarios import Scenario, all_scenarios
from tests.scenarios.compare import differences, restricted, unbalanced
from tests.test_http_scenarios import answers, as_of, deliveries, expected_of, send

if TYPE_CHECKING:
    from tests.shards.fleet import FleetService


@pytest.mark.parametrize("scenario", all_scenarios(), ids=lambda s: s.name)
def test_three_servers_give_the_same_numbers(scenario: Scenario, spread: FleetService) -> None:
    """What is expected, and all that the offline reader says, whichever servers own the jobs."""
    spread.forget()
    now = as_of(scenario)
    refused: set[int] = set()
    sent: set[int] = set()
    for delivery in deliveries(scenario.lines, 1000):
        refused |= send(spread, delivery, now)
        sent |= {number for number, _ in delivery.lines}
    offline = replay_wire(scenario.lines, as_of=now)
    assert {one.line for one in offline.quarantined} & sent == refused
    spread.make_books(now)
    actual = answers(spread)
    assert not unbalanced(actual)
    assert not differences(expected_of(scenario), actual)
    everything = document(offline)
    for job in everything["jobs"].values():
        del job["metrics"]["l1"]
    del everything["quarantined"]
    assert everything == restricted(actual, everything)
