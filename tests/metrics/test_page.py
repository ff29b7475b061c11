"""The Prometheus page of a running service, from real books."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from fleet_ett.core.taxonomy import HEADINGS
from tests.http.service import Service, running
from tests.http.story import HOUR, T0, Job, S, rollback
from tests.prometheus.programs import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
MINUTE = 60 * S
COUNTED = ("_total", "_count", "_sum", "_bucket")
RESULTS = ("accepted", "duplicate", "quarantined", "rejected")


@pytest.fixture(scope="module")
def started(engine: Engine) -> Iterator[Service]:
    """A running service."""
    with running(engine) as found:
        yield found


@pytest.fixture
def service(started: Service) -> Service:
    """A running service that has never heard of anything."""
    started.forget()
    return started


def scrape(service: Service) -> Series:
    """Every sample of the page; the page parses, and no series is there twice."""
    answer = service.ask("/metrics")
    assert 200 == answer.status_code
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found: Series = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def total(series: Series, name: str, **labels: str) -> float:
    """The sum of all series of a name that have these labels."""
    wanted = set(labels.items())
    return sum(value for (one, told), value in series.items() if one == name and wanted <= told)


def test_counters_are_the_settled_books(service: Service) -> None:
    """What REST shows as settled, in base units."""
    one = rollback("one", gpus=16, node="n1", cluster="c1", team="ads")
    service.book(one, rollback("two", node="n2", cluster="c2"))
    series = scrape(service)
    ledger = service.job("one", "/ledger")
    assert 7200 == total(series, "ett_wall_seconds_total", cluster="c1", team="ads")
    for heading in HEADINGS:
        expected = ledger["gpu_headings"][heading] / S
        assert expected == total(series, "ett_gpu_seconds_total", cluster="c1", heading=heading)
    assert ledger["gpu_ns"] / S == total(series, "ett_gpu_seconds_total", cluster="c1")
    for row in service.get("/v1/fleet/lost-time", by="component")["items"]:
        component = row["component"]
        assert row["direct_gpu_ns"] / S == total(series, "ett_lost_gpu_seconds_total", component=component)
        assert row["induced_gpu_ns"] / S == total(
            series, "ett_induced_gpu_seconds_total", component=component
        )
    assert 100 == total(series, "ett_replayed_steps_total", cluster="c1")
    assert 2 == total(series, "ett_attempts_total", cluster="c1", team="ads")
    assert 1 == total(series, "ett_failures_total", cluster="c1", kind="infra", cause="gpu_off_bus")
    assert 2 == total(series, "ett_failures_total")
    assert 1 == total(series, "ett_time_to_start_seconds_count", cluster="c1")
    assert 100 == total(series, "ett_time_to_start_seconds_sum", cluster="c1")
    assert 200 == total(series, "ett_time_to_recover_seconds_sum", cluster="c1")
    assert 0 == total(series, "ett_detection_seconds_bucket", cluster="c1", le="60.0")
    assert 1 == total(series, "ett_detection_seconds_bucket", cluster="c1", le="120.0")
    assert total(series, "ett_events_total", result="accepted") > 0


def test_every_process_shows_the_same(service: Service, engine: Engine) -> None:
    """B74: nothing is counted in a process, so a scrape may go to any."""
    service.book(rollback("one", cluster="c1"))
    with running(engine) as other:
        here, there = scrape(service), scrape(other)
    timely = ("ett_ingest_lag_seconds", "ett_attribution_lag_seconds")
    assert {key: value for key, value in here.items() if key[0] not in timely} == {
        key: value for key, value in there.items() if key[0] not in timely
    }


def test_counters_only_rise_and_series_only_appear(service: Service) -> None:
    """A story told event by event, in order and late, asked for at every moment; a rebuild changes nothing."""
    events = rollback("one", cluster="c1", team="ads").events()
    late = [event for event in events if event.type == "fault"]
    told = [event for event in events if event.type != "fault"]
    before: Series = {}
    for step, event in enumerate([*told, *late]):
        service.book_events([event], now=T0 + 7200 * S + step * 10 * MINUTE)
        series = scrape(service)
        counters = {key: value for key, value in before.items() if key[0].endswith(COUNTED)}
        assert {} == {
            key: (value, series.get(key)) for key, value in counters.items() if series.get(key, -1) < value
        }
        before = series
    assert 1 == total(before, "ett_failures_total", cause="gpu_off_bus")


def test_a_job_that_names_its_cluster_later_moves_nothing(service: Service) -> None:
    """What was counted under no name stays there; no counter falls, none is counted twice."""
    job = Job("nameless").begin(0).steps(1, 100, 0, 1000)
    service.book(job, now=T0 + HOUR)
    before = scrape(service)
    named = Job("nameless", meta={"cluster": "c9", "team": "t9"})
    named.attempts = 1
    named.steps(101, 200, 1000, 2000).end(2000)
    service.book_events([event._replace(incarnation="later") for event in named.events()], now=T0 + 3 * HOUR)
    after = scrape(service)
    unnamed = {"cluster": "", "team": ""}
    assert (
        total(before, "ett_wall_seconds_total", **unnamed)
        == total(after, "ett_wall_seconds_total", **unnamed)
        > 0
    )
    assert 1000 * 8 == total(after, "ett_gpu_seconds_total", heading="productive", **unnamed)
    assert 1000 * 8 == total(after, "ett_gpu_seconds_total", heading="productive", cluster="c9", team="t9")


def test_provisional_time_is_in_the_gauge_and_not_in_the_counters(service: Service) -> None:
    """A live job's last minutes: the ratio shows them, the counters wait until they are settled."""
    now = time.time_ns()
    at = (now - T0) / S
    job = (
        Job("live", meta={"cluster": "c1", "team": "ads"})
        .begin(at - 600)
        .phase("compile_cold", at - 600, at - 300)
    )
    service.book(job.steps(1, 100, at - 300, at - 10), now=now)
    series = scrape(service)
    ledger = service.job("live", "/ledger")
    assert ledger["settled_ns"] / S == total(series, "ett_wall_seconds_total") < 600
    for window in ("1h", "24h", "7d", "30d"):
        ratio = total(series, "ett_effective_training_ratio", cluster="c1", team="ads", window=window)
        assert 0.5 == pytest.approx(ratio, abs=0.02)
    assert 1 == total(series, "ett_jobs_running", cluster="c1", team="ads")
    assert 8 == total(series, "ett_gpus_allocated", cluster="c1", team="ads")
    assert 0.02 > total(series, "ett_data_quality_ratio", cluster="c1")
    assert 0 <= total(series, "ett_ingest_lag_seconds") < 3600


def test_finished_jobs_leave_the_gauges(service: Service) -> None:
    """B75: nothing runs, nothing is held, and a window in which nothing was held has no ratio."""
    service.book(rollback("one", cluster="c1", team="ads"))
    series = scrape(service)
    assert 0 == total(series, "ett_jobs_running", cluster="c1", team="ads")
    assert 0 == total(series, "ett_gpus_allocated", cluster="c1", team="ads")
    assert not [name for name, _ in series if name == "ett_effective_training_ratio"]


def test_names_come_through_unchanged_and_forge_nothing(service: Service) -> None:
    """B76: on the page and in REST."""
    team = 'back\\slash\t\U0001f30b\uffff "quoted"\nett_fleet_percent{cluster="c1"} 100 #'
    service.book(rollback('x"} 1\nforged', cluster='c"1', team=team))
    series = scrape(service)
    assert 2 == total(series, "ett_attempts_total", cluster='c"1', team=team)
    assert not [name for name, _ in series if name in ("ett_fleet_percent", "forged")]
    (row,) = service.get("/v1/jobs", team=team)["items"]
    assert (team, 'c"1', 'x"} 1\nforged') == (row["team"], row["cluster"], row["job"])


def test_phases_of_anybodys_making_do_not_make_series(service: Service) -> None:
    """B75: 500 phase names of one job's own are one series; their time is all there."""
    job = Job("inventive", 1, meta={"cluster": "c1"}).begin(0)
    for place in range(500):
        job.phase(f"invented-{place}", place, place + 1)
    service.book(job.end(500))
    series = scrape(service)
    lost = [dict(labels) for name, labels in series if name == "ett_lost_gpu_seconds_total"]
    assert 500 == total(series, "ett_lost_gpu_seconds_total", phase="custom")
    assert 2 == [one["phase"] for one in lost].count("custom")  # repeated, and not
    assert len(series) < 700


def test_refused_and_repeated_events_are_counted(service: Service) -> None:
    """By what became of them."""
    events = rollback("one", cluster="c1").events()
    service.book_events(events)
    service.book_events(events[:3])
    bad = {"seq": 99, "type": "nonsense"}
    service.client.post("/v1/events", json={"agent": {"node": "n1", "incarnation": "b"}, "events": [bad]})
    service.client.post("/v1/events", content=b"not json")
    series = scrape(service)
    counted = {name: total(series, "ett_events_total", result=name) for name in RESULTS}
    assert {"accepted": len(events), "duplicate": 3, "quarantined": 1, "rejected": 1} == counted


def test_openmetrics_on_request(service: Service) -> None:
    """The format that the scraper prefers says the same as the other one."""
    team = 'back\\slash\t\U0001f30b\uffff "quoted"\nett_fleet_percent{cluster="c1"} 100 #'
    service.book(rollback("one", cluster="c1", team=team))
    answer = service.ask("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read_openmetrics(answer.text)
        for sample in family.samples
    }
    plain = scrape(service)
    assert plain.keys() == found.keys()
    assert {} == {
        key: (value, plain[key])
        for key, value in found.items()
        if "lag" not in key[0] and value != plain[key]
    }


def test_promtool_has_nothing_to_say(service: Service) -> None:
    """Prometheus' own linter of pages, on a page with books."""
    service.book(rollback("one", cluster="c1", team="ads"))
    page = service.ask("/metrics").content
    told = subprocess.run(
        [program("promtool"), "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (0, b"", b"") == (told.returncode, told.stdout, told.stderr)
