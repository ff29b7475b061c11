"""The other convention beside ETT: what a later attempt began again at or below was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.postgres.maintenance import drop_old_events
from fleet_ett.postgres.partitions import DAY_NS
from tests.http.story import T0, Job, rollback

if TYPE_CHECKING:
    from tests.http.service import Service


def test_the_surviving_execution_is_productive(service: Service) -> None:
    """100 of the first 1,000 steps were lost; the buckets add up to the wall time."""
    service.book(rollback("lost"))
    told = service.job("lost", "/goodput")
    buckets = {name: value for name, value in told.items() if name.endswith("_s")}
    assert {
        "productive_s": 6000.0,  # 900 steps of 4 s and 600 of 4 s
        "startup_s": 200.0,
        "data_wait_s": 0.0,
        "checkpoint_s": 100.0,
        "recovery_gap_s": 200.0,  # silence and gap
        "repeated_work_s": 400.0,
        "other_s": 300.0,  # publishing
        "total_s": 7200.0,
        "lost_progress_s": 0.0,
    } == buckets
    assert 6000 / 7200 == told["goodput"]


def test_a_job_without_time_has_none(service: Service) -> None:
    """Hardware since this very moment: no ratio of nothing."""
    service.book(Job("waiting").begin(0), now=T0)
    told = service.job("waiting", "/goodput")
    assert (None, 0.0) == (told["goodput"], told["total_s"])


def test_an_unknown_job_is_a_problem(service: Service) -> None:
    """404, with the name that was asked for."""
    answer = service.ask("/v1/jobs/nobody/goodput")
    assert (404, "not_found") == (answer.status_code, answer.json()["code"])


def test_it_needs_the_raw_events(service: Service) -> None:
    """Once retention has dropped them the books stay, and this view says why it cannot."""
    service.book(rollback("old"))
    drop_old_events(service.engine, keep_ns=DAY_NS, now=T0 + 60 * DAY_NS)
    assert 7200 * 10**9 == service.job("old", "/ledger")["wall_ns"]
    answer = service.ask("/v1/jobs/old/goodput")
    assert (409, "conflict") == (answer.status_code, answer.json()["code"])
    assert "retention" in answer.json()["detail"]
