"""The two text formats, read back by the field's own readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from fleet_ett.metrics.exporter import families
from fleet_ett.metrics.text import Family, render
from fleet_ett.readings import WINDOWS, Count, Durations, Productive, Readings, Running, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

HOSTILE = 'back\\slash\t"quote"\n\U0001f30b\uffff{}=, #'
OPEN = "application/openmetrics-text; version=1.0.0"
READINGS = Readings(
    tenants=[("c1", HOSTILE), ("c2", "")],
    counts=[Count("gpu_seconds", {"cluster": "c1", "team": HOSTILE, "heading": "productive"}, 10**19 + 1)],
    durations=[Durations("detection_seconds", "c1", (0, 0, 1, *(3,) * 10), 4, 10**15 + 1)],
    productive=[Productive("c1", HOSTILE, window, 1, 3) for window in WINDOWS],
    running=[Running("c1", HOSTILE, 2, 16)],
    unknown=[Unknown("c1", 1, 7)],
    events={"accepted": 2**60},
    ingest_lag_ns=1,
    attribution_lag_ns=0,
)


class TheirFamilies:
    """Our families as prometheus_client's."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from map(their_family, families(READINGS))


def their_family(one: Family) -> Metric:
    """One family, its samples added as a user of prometheus_client does."""
    names = [name for name, _ in one.samples[0][1] if name != "le"] if one.samples else []
    unit = "seconds" if one.name.endswith("_seconds") else ""
    if one.kind != "histogram":
        kind = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
        family: Metric = kind(one.name, one.help, labels=names, unit=unit)
        for _, labels, value in one.samples:
            family.add_metric([told for _, told in labels], value)
        return family
    family = HistogramMetricFamily(one.name, one.help, labels=names, unit=unit)
    buckets: list[tuple[str, float]] = []
    for suffix, labels, value in one.samples:
        if suffix == "_bucket":
            buckets.append((dict(labels)["le"], value))
        elif suffix == "_sum":
            family.add_metric([told for _, told in labels], buckets, value)
            buckets = []
    return family


@pytest.mark.parametrize(
    ("accept", "write", "read"),
    [("", generate_latest, read_plain), (OPEN, generate_openmetrics, read_openmetrics)],
)
def test_each_family_is_what_a_user_of_the_library_would_make(
    accept: str,
    write: Callable[[CollectorRegistry], bytes],
    read: Callable[[str], Iterable[Metric]],
) -> None:
    """Names, types, units, help and samples, with hostile labels and numbers beyond 2^53."""
    registry = CollectorRegistry()
    registry.register(TheirFamilies())
    ours, _ = render(families(READINGS), accept)
    theirs, own = (list(read(page.decode())) for page in (write(registry), ours))
    assert len(theirs) == len(own) == 18
    for their, our in zip(theirs, own, strict=True):
        assert (their.name, their.type, their.unit, their.documentation) == (
            our.name,
            our.type,
            our.unit,
            our.documentation,
        )
        assert their.samples == our.samples


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=nonsense", False),
        # Prometheus 2.53 and 3.5 as they come
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.4",
            True,
        ),
    ],
)
def test_the_scraper_has_its_choice(accept: str, *, is_open: bool) -> None:
    page, media_type = render([Family("ett_x", "gauge", "One.")], accept)
    assert media_type.startswith("application/openmetrics-text" if is_open else "text/plain")
    assert is_open == page.endswith(b"# EOF\n")
