"""The Prometheus page from one look at the books."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from fleet_ett.core.causes_default import CAUSES
from fleet_ett.core.taxonomy import HEADINGS
from fleet_ett.metrics.exporter import Page
from fleet_ett.readings import (
    BUCKETS_S,
    MAX_TENANTS,
    Count,
    Durations,
    Productive,
    Readings,
    Running,
    Unknown,
)

HOSTILE = 'back\\slash\t"quote"\n\U0001f30b\uffff'
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(readings: Readings) -> Series:
    """Every sample of the page, parsed."""
    body, media_type = Page(lambda: readings)("")
    assert "text/plain" in media_type
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(series: Series, name: str, **labels: str) -> float | None:
    """One sample; None when it is absent."""
    return series.get((name, frozenset(labels.items())))


def test_an_empty_fleet_has_no_ratio_and_no_nan() -> None:
    """0/0 has no sample; ingest counters are there as 0."""
    series = scrape(Readings())
    assert all(map(math.isfinite, series.values()))
    assert not [name for name, _ in series if "ratio" in name or "lag" in name]
    assert 0 == value(series, "ett_events_total", result="conflict")


def test_a_cluster_has_all_its_series_from_its_first_event_on() -> None:
    """All headings, components and causes as 0, so that a first increment shows."""
    series = scrape(Readings(tenants=[("c1", "ads")]))
    for heading in HEADINGS:
        assert 0 == value(series, "ett_gpu_seconds_total", cluster="c1", team="ads", heading=heading)
    causes = {dict(labels)["cause"] for name, labels in series if name == "ett_failures_total"}
    assert {row[0] for row in CAUSES} == causes
    assert 0 == value(
        series,
        "ett_lost_gpu_seconds_total",
        cluster="c1",
        component="compiler",
        phase="compile_cold",
        repeated="true",
    )
    assert 0 == value(series, "ett_time_to_start_seconds_count", cluster="c1")
    assert 0 == value(series, "ett_jobs_running", cluster="c1", team="ads")


def test_times_are_seconds_and_numbers_are_numbers() -> None:
    """The books hold ns; the page holds base units."""
    tenants = [("c1", "ads")]
    who = {"cluster": "c1", "team": "ads"}
    counts = [
        Count("wall_seconds", who, 1_500_000_000),
        Count("replayed_steps", who, 7),
        Count("attempts", who, 2),
    ]
    series = scrape(Readings(tenants=tenants, counts=counts))
    assert 1.5 == value(series, "ett_wall_seconds_total", **who)
    assert 7 == value(series, "ett_replayed_steps_total", **who)
    assert 2 == value(series, "ett_attempts_total", **who)


def test_the_first_custom_phase_makes_no_series() -> None:
    """What the taxonomy does not know is counted under names that are there from the start."""
    custom = {"cluster": "c1", "component": "unowned", "phase": "custom", "repeated": "false"}
    headed = {"cluster": "c1", "team": "ads", "heading": "custom"}
    counts = [Count("lost_gpu_seconds", custom, 5_000_000_000), Count("gpu_seconds", headed, 4_000_000_000)]
    before = scrape(Readings(tenants=[("c1", "ads")]))
    after = scrape(Readings(tenants=[("c1", "ads")], counts=counts))
    assert 0 == value(before, "ett_lost_gpu_seconds_total", **custom)
    assert 5 == value(after, "ett_lost_gpu_seconds_total", **custom)
    assert 4 == value(after, "ett_gpu_seconds_total", **headed)
    assert before.keys() == after.keys()


def test_names_cannot_forge_series() -> None:
    """B76: quotes, newlines and back-slashes are escaped, and come back unchanged."""
    forged = 'x"} 1\nett_fleet_percent{cluster="c1"} 100 #'
    tenants = [("c1", HOSTILE), ("c1", forged)]
    counts = [Count("attempts", {"cluster": "c1", "team": team}, 1) for _, team in tenants]
    series = scrape(Readings(tenants=tenants, counts=counts))
    assert 1 == value(series, "ett_attempts_total", cluster="c1", team=HOSTILE)
    assert 1 == value(series, "ett_attempts_total", cluster="c1", team=forged)
    assert not [name for name, _ in series if name == "ett_fleet_percent"]


def test_the_number_of_series_is_bounded_and_earlier_teams_keep_theirs() -> None:
    """A sender that makes up teams ends up in "other"; nothing of it is lost."""
    tenants = [("c1", f"team-{i}") for i in range(MAX_TENANTS + 100)]
    counts = [Count("attempts", {"cluster": "c1", "team": team}, 1) for _, team in tenants]
    series = scrape(Readings(tenants=tenants, counts=counts))
    mine = [labels for name, labels in series if name == "ett_attempts_total"]
    assert MAX_TENANTS + 1 == len(mine)
    assert 1 == value(series, "ett_attempts_total", cluster="c1", team="team-0")
    assert 100 == value(series, "ett_attempts_total", cluster="c1", team="other")


def test_ratios_are_ratios_of_sums() -> None:
    """B70: teams that share a label add up first; sums beyond 64 bits stay sane."""
    hour = 3_600_000_000_000
    productive = [
        Productive("c1", "a", "24h", 1024 * 5 * hour, 1024 * 10 * hour),
        Productive("c1", "b", "24h", 2**66, 2**67),
        Productive("c1", "idle", "24h", 0, 0),
    ]
    tenants = [("c1", "a"), ("c1", "b"), ("c1", "idle")]
    series = scrape(Readings(tenants=tenants, productive=productive, unknown=[Unknown("c1", 1, 4)]))
    assert 0.5 == value(series, "ett_effective_training_ratio", cluster="c1", team="a", window="24h")
    assert 0.5 == value(series, "ett_effective_training_ratio", cluster="c1", team="b", window="24h")
    assert None is value(series, "ett_effective_training_ratio", cluster="c1", team="idle", window="24h")
    assert 0.25 == value(series, "ett_data_quality_ratio", cluster="c1")


def test_histograms_are_cumulative() -> None:
    """Classic buckets, a count and a sum in seconds."""
    buckets = tuple(int(bound >= 60) for bound in BUCKETS_S)
    series = scrape(
        Readings(
            tenants=[("c1", "a")],
            durations=[Durations("detection_seconds", "c1", buckets, 1, 60_000_000_000)],
        )
    )
    assert 0 == value(series, "ett_detection_seconds_bucket", cluster="c1", le="30.0")
    assert 1 == value(series, "ett_detection_seconds_bucket", cluster="c1", le="60.0")
    assert 1 == value(series, "ett_detection_seconds_bucket", cluster="c1", le="+Inf")
    assert 60 == value(series, "ett_detection_seconds_sum", cluster="c1")


def test_gauges_of_now() -> None:
    """Jobs running, GPUs held, and the lags; a lag below zero (clocks) is 0."""
    readings = Readings(
        tenants=[("c1", "a")],
        running=[Running("c1", "a", 2, 16, 8)],
        ingest_lag_ns=-5,
        attribution_lag_ns=2_000_000_000,
    )
    series = scrape(readings)
    assert 2 == value(series, "ett_jobs_running", cluster="c1", team="a")
    assert 16 == value(series, "ett_gpus_allocated", cluster="c1", team="a")
    assert 8 == value(series, "ett_gpus_without_progress", cluster="c1", team="a")
    assert 0 == value(series, "ett_ingest_lag_seconds")
    assert 2 == value(series, "ett_attribution_lag_seconds")
