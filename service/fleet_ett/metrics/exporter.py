"""One look at the books as Prometheus families, and the page itself.

Nothing is kept between scrapes, so every process shows the same. A ratio without a denominator has no
sample: there is no NaN on the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.metrics import families as told
from fleet_ett.metrics.closed import Tenants, zeros
from fleet_ett.metrics.text import Family, render
from fleet_ett.readings import BUCKETS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet_ett.metrics.families import Counter, Told
    from fleet_ett.readings import Count, Readings, ReadReadings


class Page:
    """The Prometheus page."""

    def __init__(self, read: ReadReadings) -> None:
        self._read = read

    def __call__(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that the scraper prefers, and its media type.

        Raises what the reader raises: half a page is never shown.
        """
        return render(families(self._read()), accept)


def families(readings: Readings) -> Iterator[Family]:
    """All families of one look at the books."""
    tenants = Tenants(readings.tenants)
    by_metric: dict[str, list[Count]] = {}
    for count in readings.counts:
        by_metric.setdefault(count.metric, []).append(count)
    for counter in told.COUNTERS:
        yield _counter(counter, by_metric.get(counter.name, ()), tenants)
    for histogram in told.HISTOGRAMS:
        yield _histogram(histogram, readings, tenants)
    yield _ratio(readings, tenants)
    yield from _running(readings, tenants)
    yield _quality(readings, tenants)
    yield _events(readings)
    yield from _lags(readings)


def _family(one: Told | Counter, kind: str) -> Family:
    return Family(f"ett_{one.name}", kind, one.help)


def _counter(counter: Counter, counts: Iterable[Count], tenants: Tenants) -> Family:
    sums = dict.fromkeys(zeros(counter, tenants), 0)
    for count in counts:
        labels, cluster = count.labels, count.labels.get("cluster", "")
        if counter.labels[1] == "team":
            key = (*tenants.pair(cluster, labels["team"]), *(labels[name] for name in counter.labels[2:]))
        else:
            key = (tenants.cluster(cluster), *(labels[name] for name in counter.labels[1:]))
        sums[key] = sums.get(key, 0) + count.value
    family = _family(counter, "counter")
    for values, amount in sorted(sums.items()):
        labelled = tuple(zip(counter.labels, values, strict=True))
        family.add(labelled, amount / told.SECOND_NS if counter.is_time else amount)
    return family


def _histogram(histogram: Told, readings: Readings, tenants: Tenants) -> Family:
    empty = (0,) * (len(BUCKETS_S) + 2)  # the buckets, the count, the sum
    sums = dict.fromkeys(sorted(tenants.clusters), empty)
    for one in readings.durations:
        if one.metric == histogram.name:
            cluster = tenants.cluster(one.cluster)
            more = (*one.buckets, one.count, one.sum_ns)
            sums[cluster] = tuple(a + b for a, b in zip(sums.get(cluster, empty), more, strict=True))
    family = _family(histogram, "histogram")
    for cluster, (*buckets, count, sum_ns) in sorted(sums.items()):
        of_cluster = ("cluster", cluster)
        for bound, amount in zip(BUCKETS_S, buckets, strict=True):
            family.add((of_cluster, ("le", f"{bound:.1f}")), amount, "_bucket")
        family.add((of_cluster, ("le", "+Inf")), count, "_bucket")
        family.add((of_cluster,), count, "_count")
        family.add((of_cluster,), sum_ns / told.SECOND_NS, "_sum")
    return family


def _ratio(readings: Readings, tenants: Tenants) -> Family:
    rows = (
        ((*tenants.pair(one.cluster, one.team), one.window), one.productive_gpu_ns, one.gpu_ns)
        for one in readings.productive
    )
    return _ratios(_family(told.RATIO, "gauge"), ("cluster", "team", "window"), rows)


def _quality(readings: Readings, tenants: Tenants) -> Family:
    rows = (((tenants.cluster(one.cluster),), one.unknown_gpu_ns, one.gpu_ns) for one in readings.unknown)
    return _ratios(_family(told.QUALITY, "gauge"), ("cluster",), rows)


def _ratios(
    family: Family, names: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], int, int]]
) -> Family:
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for key, part, whole in rows:
        had_part, had_whole = sums.get(key, (0, 0))
        sums[key] = (had_part + part, had_whole + whole)
    for key, (part, whole) in sorted(sums.items()):
        if whole:
            family.add(tuple(zip(names, key, strict=True)), part / whole)
    return family


def _running(readings: Readings, tenants: Tenants) -> Iterator[Family]:
    jobs = dict.fromkeys(tenants.shown(), 0)
    gpus, stuck = dict(jobs), dict(jobs)
    for one in readings.running:
        pair = tenants.pair(one.cluster, one.team)
        jobs[pair] = jobs.get(pair, 0) + one.jobs
        gpus[pair] = gpus.get(pair, 0) + one.gpus
        stuck[pair] = stuck.get(pair, 0) + one.stuck_gpus
    for gauge, sums in ((told.RUNNING, jobs), (told.ALLOCATED, gpus), (told.STUCK, stuck)):
        family = _family(gauge, "gauge")
        for (cluster, team), amount in sorted(sums.items()):
            family.add((("cluster", cluster), ("team", team)), amount)
        yield family


def _events(readings: Readings) -> Family:
    family = _family(told.EVENTS, "counter")
    for result in told.EVENT_RESULTS:
        family.add((("result", result),), readings.events.get(result, 0))
    return family


def _lags(readings: Readings) -> Iterator[Family]:
    lags = (readings.ingest_lag_ns, readings.attribution_lag_ns)
    for gauge, lag in zip((told.INGEST_LAG, told.ATTRIBUTION_LAG), lags, strict=True):
        family = _family(gauge, "gauge")
        if lag is not None:
            family.add((), max(lag, 0) / told.SECOND_NS)
        yield family
