"""Options of the whole test run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["tests.databases"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a run may be told beyond pytest's own options."""
    parser.addoption("--accept", action="store_true", help="rewrite expected.json of scenarios that differ")
    parser.addoption("--fleets", type=int, default=300, help="random fleets for the judge (default 300)")
    parser.addoption(
        "--fleet-size", type=int, default=1, help="scale of each: jobs, attempts, windows, nodes"
    )
