"""Options of the whole test run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--accept` rewrites the expected.json of scenarios with what the core says, for review in the diff."""
    parser.addoption("--accept", action="store_true", help="rewrite expected.json of scenarios that differ")
