"""Families of samples as text, by `prometheus_client`: OpenMetrics for a scraper that asks for it, else plain text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples: suffix of the name, labels, and value."""

    name: str
    kind: str  # counter, gauge, histogram
    help: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, labels: Labels, value: float, suffix: str = "") -> None:
        """One more sample. A counter's `_total` needs no suffix."""
        self.samples.append((suffix, labels, value))

    def metric(self) -> Metric:
        """The same as prometheus_client has it."""
        made = Metric(self.name, self.help, self.kind, "seconds" if self.name.endswith("_seconds") else "")
        total = "_total" if self.kind == "counter" else ""
        for suffix, labels, value in self.samples:
            made.add_sample(f"{self.name}{suffix or total}", dict(labels), value)
        return made


@dataclass(frozen=True, slots=True)
class _Look:
    """What an encoder asks: a collector whose families are there already."""

    families: Iterable[Family]

    def collect(self) -> Iterator[Metric]:
        """Every family once."""
        return (family.metric() for family in self.families)


def render(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """The page in the format that the scraper prefers, and its media type."""
    try:
        encode, media_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        encode, media_type = choose_encoder("")
    return encode(_Look(families)), media_type
