"""Books as frames: nothing gained or lost on the way, and ratios of sums."""

from __future__ import annotations

import pandas as pd
import pytest

from fleet_ett.analytics import cells_frame, ett_by, lost_by, segments_frame
from fleet_ett.core.ledger import FleetBooks, attribute_fleet
from tests.http.story import HOUR, T0, Job, S, rollback


@pytest.fixture(scope="module")
def books() -> FleetBooks:
    """A big job at half its time, a small one at all of it (case B70), and a rollback."""
    big = Job("big", 1024, "n1", {"cluster": "c1"}).begin(0).phase("compile_cold", 0, 18_000)
    small = Job("small", 8, "n2", {"cluster": "c2"}).begin(0).steps(1, 100, 0, 36_000).end(36_000)
    jobs = (big.steps(1, 100, 18_000, 36_000).end(36_000), small, rollback("again", node="n3", cluster="c2"))
    return attribute_fleet([event for job in jobs for event in job.events()])


def test_cells_hold_every_second(books: FleetBooks) -> None:
    """Wall and GPU time by job are those of the ledger."""
    cells = cells_frame(books)
    for job, ledger in books.jobs.items():
        mine = cells[cells["job"] == job]
        assert ledger.summary.wall_ns / 1e9 == pytest.approx(mine["wall_s"].sum())
        assert ledger.summary.gpu_ns / 1e9 == pytest.approx(mine["gpu_s"].sum())


def test_segments_tile_the_job(books: FleetBooks) -> None:
    """One after the other, from the first allocation to the last release."""
    found = segments_frame(books.jobs["again"])
    assert pd.Timestamp(T0, tz="UTC") == found["start"].iloc[0]
    assert pd.Timestamp(T0 + 7200 * S, tz="UTC") == found["end"].iloc[-1]
    assert found["end"].iloc[:-1].tolist() == found["start"].iloc[1:].tolist()
    assert 7200 == found["wall_s"].sum()


def test_ett_is_a_ratio_of_sums(books: FleetBooks) -> None:
    """1,024 GPUs at 50% and 8 at 100% are 50.39%, not 75%."""
    cells = cells_frame(books)
    both = cells[cells["job"].isin(("big", "small"))]
    assert (5120 + 80) / (10240 + 80) == pytest.approx(ett_by(both, "W")["ett"].iloc[0])
    by_cluster = ett_by(both, "W", ["cluster"])["ett"]
    assert [0.5, 1.0] == by_cluster.tolist()


def test_nothing_held_is_no_ratio(books: FleetBooks) -> None:
    """A period without GPU time has no ETT, neither 0 nor 1."""
    cells = cells_frame(books)
    gap = cells[cells["heading"] == "gap"]
    assert ett_by(gap, "h")["ett"].isna().all()
    assert ett_by(cells[:0], "D").empty


def test_losses_by_owner_and_hour(books: FleetBooks) -> None:
    """GPU-hours, the dearest owner first; each hour has its own."""
    told = lost_by(cells_frame(books), "component", "h")
    assert "compiler" == told.columns[0]
    assert 1024 * 5 + 8 * 200 / 3600 == pytest.approx(told["compiler"].sum())
    assert 1024 == pytest.approx(told["compiler"].loc[pd.Timestamp(T0 + HOUR, tz="UTC")] - 8 * 100 / 3600)
