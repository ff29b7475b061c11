"""The collector that turns one look at the books into Prometheus families, and the page itself.

Nothing is kept between scrapes, so every process shows the same. A ratio without a denominator has no
sample: there is no NaN on the page. Label values are escaped by prometheus_client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder

from fleet_ett.metrics.closed import Tenants, closed_labels, zeros
from fleet_ett.metrics.families import COUNTERS, EVENT_RESULTS, HISTOGRAMS, SECOND_NS
from fleet_ett.readings import BUCKETS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from fleet_ett.metrics.families import Counter, Histogram
    from fleet_ett.readings import Readings, ReadReadings


class BooksCollector:
    """Reads the books at every scrape."""

    def __init__(self, read: ReadReadings) -> None:
        self._read = read

    def describe(self) -> list[Metric]:
        """Nothing: registering must not ask the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families. Raises what the reader raises: half a page is never shown."""
        readings = self._read()
        tenants = Tenants(readings.tenants)
        for counter in COUNTERS:
            yield _counter(counter, readings, tenants)
        for histogram in HISTOGRAMS:
            yield _histogram(histogram, readings, tenants)
        yield _ratio(readings, tenants)
        yield from _running(readings, tenants)
        yield _quality(readings, tenants)
        yield _events(readings)
        yield from _lags(readings)


class Page:
    """The Prometheus page."""

    def __init__(self, read: ReadReadings) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(BooksCollector(read))

    def __call__(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that the scraper prefers, and its media type."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type


def _counter(counter: Counter, readings: Readings, tenants: Tenants) -> Metric:
    sums = dict.fromkeys(zeros(counter, tenants), 0)
    for count in readings.counts:
        if count.metric == counter.name:
            labels = closed_labels(count.labels, tenants)
            key = tuple(labels.get(name, "") for name in counter.labels)
            sums[key] = sums.get(key, 0) + count.value
    family = CounterMetricFamily(f"ett_{counter.name}", counter.help, labels=counter.labels)
    for values, amount in sorted(sums.items()):
        family.add_metric(values, amount / SECOND_NS if counter.is_time else amount)
    return family


def _histogram(histogram: Histogram, readings: Readings, tenants: Tenants) -> Metric:
    family = HistogramMetricFamily(f"ett_{histogram.name}", histogram.help, labels=("cluster",))
    empty = (0,) * (len(BUCKETS_S) + 2)  # the buckets, the count, the sum
    sums = dict.fromkeys(sorted(tenants.clusters), empty)
    for one in readings.durations:
        if one.metric == histogram.name:
            cluster = tenants.cluster(one.cluster)
            told = (*one.buckets, one.count, one.sum_ns)
            sums[cluster] = tuple(a + b for a, b in zip(sums.get(cluster, empty), told, strict=True))
    for cluster, (*buckets, count, sum_ns) in sorted(sums.items()):
        bounds = [(f"{bound:.1f}", amount) for bound, amount in zip(BUCKETS_S, buckets, strict=True)]
        family.add_metric([cluster], [*bounds, ("+Inf", count)], sum_ns / SECOND_NS)
    return family


def _ratio(readings: Readings, tenants: Tenants) -> Metric:
    family = GaugeMetricFamily(
        "ett_effective_training_ratio",
        "ETT as 0..1, GPU-weighted, settled and provisional, from a full hour on. For fleets divide sums of counters.",
        labels=("cluster", "team", "window"),
    )
    rows = (
        ((*tenants.pair(one.cluster, one.team), one.window), one.productive_gpu_ns, one.gpu_ns)
        for one in readings.productive
    )
    return _ratios(family, rows)


def _quality(readings: Readings, tenants: Tenants) -> Metric:
    family = GaugeMetricFamily(
        "ett_data_quality_ratio", "Share of GPU time for which nothing was reported.", labels=("cluster",)
    )
    rows = (((tenants.cluster(one.cluster),), one.unknown_gpu_ns, one.gpu_ns) for one in readings.unknown)
    return _ratios(family, rows)


def _ratios(family: GaugeMetricFamily, rows: Iterable[tuple[tuple[str, ...], int, int]]) -> Metric:
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for key, part, whole in rows:
        had_part, had_whole = sums.get(key, (0, 0))
        sums[key] = (had_part + part, had_whole + whole)
    for key, (part, whole) in sorted(sums.items()):
        if whole:
            family.add_metric(key, part / whole)
    return family


def _running(readings: Readings, tenants: Tenants) -> Iterator[Metric]:
    jobs = dict.fromkeys(tenants.shown(), 0)
    gpus = dict(jobs)
    for one in readings.running:
        pair = tenants.pair(one.cluster, one.team)
        jobs[pair] = jobs.get(pair, 0) + one.jobs
        gpus[pair] = gpus.get(pair, 0) + one.gpus
    for name, text, sums in (
        ("ett_jobs_running", "Jobs that hold hardware now.", jobs),
        ("ett_gpus_allocated", "GPUs that jobs hold now.", gpus),
    ):
        family = GaugeMetricFamily(name, text, labels=("cluster", "team"))
        for pair, amount in sorted(sums.items()):
            family.add_metric(pair, amount)
        yield family


def _events(readings: Readings) -> Metric:
    family = CounterMetricFamily("ett_events", "Events received, by what became of them.", labels=("result",))
    for result in EVENT_RESULTS:
        family.add_metric([result], readings.events.get(result, 0))
    return family


def _lags(readings: Readings) -> Iterator[Metric]:
    for name, text, lag in (
        ("ett_ingest_lag_seconds", "Age of the newest event stored.", readings.ingest_lag_ns),
        (
            "ett_attribution_lag_seconds",
            "How long the oldest unattributed change has waited.",
            readings.attribution_lag_ns,
        ),
    ):
        family = GaugeMetricFamily(name, text)
        if lag is not None:
            family.add_metric([], max(lag, 0) / SECOND_NS)
        yield family
