"""Every benchmark can be started: nothing else imports them, and most of them run for minutes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHES = sorted(path.stem for path in (Path(__file__).parent / "bench").glob("[!_]*.py"))


@pytest.mark.parametrize("name", BENCHES)
def test_a_benchmark_finds_all_that_it_needs(name: str) -> None:
    assert importlib.import_module(f"tests.bench.{name}").__doc__
