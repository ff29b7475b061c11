"""Options of the whole test run."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

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
    """`--accept` rewrites the expected.json of scenarios with what the core says, for review in the diff."""
    parser.addoption("--accept", action="store_true", help="rewrite expected.json of scenarios that differ")
