"""Options of the whole test run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["tests.databases"]

# A shared machine has slow moments: no deadline an example. ETT_TEST_EXAMPLES=5000 looks harder.
settings.register_profile(
    "fleet-ett",
    deadline=None,
    max_examples=int(os.environ.get("ETT_TEST_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fleet-ett")


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a run may be told beyond pytest's own options."""
    parser.addoption("--accept", action="store_true", help="rewrite expected.json of scenarios that differ")
    parser.addoption("--fleets", type=int, default=300, help="random fleets for the judge (default 300)")
    parser.addoption(
        "--fleet-size", type=int, default=1, help="scale of each: jobs, attempts, windows, nodes"
    )
