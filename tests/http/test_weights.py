"""Large and uneven fleets: weights and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.http.service import CSV
from tests.http.story import HOUR, T0, Job, S

if TYPE_CHECKING:
    from tests.http.service import Service


def test_ratio_of_sums_not_mean_of_ratios(service: Service) -> None:
    """B70: 1,024 GPUs at 50% beside 8 at 100%."""
    half = Job("b70-a", 1024, "n8", {"cluster": "b70"}).begin(0).steps(1, 10, 0, 18_000)
    half.phase("evaluation", 18_000, 36_000).end(36_000)
    whole = Job("b70-b", 8, "n9", {"cluster": "b70"}).begin(0).steps(1, 10, 0, 36_000).end(36_000)
    service.book(half, whole)
    total = service.get("/v1/fleet/ett", cluster="b70")
    assert (5120 + 80) / (10240 + 80) == pytest.approx(total["ett"])
    assert 0.75 == total["ett_job_weighted"]


def test_sums_beyond_64_bits_are_exact(service: Service) -> None:
    """100,000 GPUs for 30 days are more GPU-ns than 63 bits hold."""
    days = 30 * 24 * 3600
    job = Job("huge", 100_000, "n7", {"cluster": "huge"}).begin(-days).steps(1, 10, -days, 0).end(0)
    service.book(job)
    expected = days * S * 100_000
    assert expected > 2**63
    assert expected == service.get("/v1/fleet/ett", cluster="huge")["gpu_ns"]
    assert expected == service.job("huge")["gpu_ns"]
    text_of = service.ask("/v1/jobs", headers=CSV, job="huge").text
    assert str(expected) in text_of


@pytest.mark.parametrize("by", ["", "job", "cluster,team"])
def test_live_jobs_are_chosen_in_a_window_that_is_over(service: Service, by: str) -> None:
    """They have no end yet, neither those that are meant nor those that are not."""
    day = 86_400
    jobs = [Job(f"live-{name}", 8, f"node-{name}", {"cluster": "live", "team": "ads"}) for name in "abc"]
    for job in jobs:
        compiles = "compile_cold" if job.job != "live-b" else "model_build"
        job.begin(-9 * day).phase(compiles, -9 * day, -9 * day + 3600).steps(1, 10, -9 * day + 3600, 0)
    service.book(*jobs, now=T0 + HOUR)
    window = {"from_": T0 - 20 * day * S, "to": T0 - HOUR + 7}
    more = {"by": by} if by else {}
    total = service.get("/v1/fleet/ett", cluster="live", phase="compile_cold", **window, **more)
    wall = 2 * (9 * day * S - HOUR + 7)
    assert (2, wall) == (total["jobs"], total["wall_ns"])
    assert wall == sum(row["wall_ns"] for row in total["items"]) or not by
    assert {"startup": 7200 * S, "productive": wall - 7200 * S} == {
        name: ns for name, ns in total["headings"].items() if ns
    }
