"""Families of samples as text: OpenMetrics 1.0.0 for a scraper that asks for it, else Prometheus' own format 0.0.4.

Both say what `prometheus_client` says of the same families (a test reads and compares them), in a fraction of its
time: names of metrics and labels are this project's own and need no check at every sample of every scrape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

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


def render(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """The page in the format that the scraper prefers, and its media type."""
    if prefers_openmetrics(accept):
        lines = [line for family in families for line in _lines(family, is_open=True)]
        return "".join((*lines, "# EOF\n")).encode(), OPENMETRICS_TYPE
    lines = [line for family in families for line in _lines(family, is_open=False)]
    return "".join(lines).encode(), PLAIN_TYPE


def prefers_openmetrics(accept: str) -> bool:
    """Whether an `Accept` header names OpenMetrics, and plain text not with more weight.

    Its parameters but `q` are not looked at: 1.0.0 is what every version's reader can read.
    """
    weights = dict.fromkeys((OPENMETRICS, "text/plain"), 0.0)
    for one in accept.split(","):
        media_type, *parameters = (part.strip() for part in one.lower().split(";"))
        if media_type in weights:
            weights[media_type] = max(weights[media_type], _weight(parameters))
    return weights[OPENMETRICS] > 0 and weights[OPENMETRICS] >= weights["text/plain"]


def _weight(parameters: Iterable[str]) -> float:
    told = next((one[2:] for one in parameters if one.startswith("q=")), "1")
    try:
        return float(told)
    except ValueError:
        return 0.0


def _lines(family: Family, *, is_open: bool) -> Iterator[str]:
    total = "_total" if family.kind == "counter" else ""
    titled = family.name if is_open else f"{family.name}{total}"
    yield f"# HELP {titled} {family.help.translate(_VALUE if is_open else _HELP)}\n"
    yield f"# TYPE {titled} {family.kind}\n"
    if is_open and family.name.endswith("_seconds"):
        yield f"# UNIT {titled} seconds\n"
    for suffix, labels, value in family.samples:
        name = f"{family.name}{suffix or total}"
        if labels:
            told = ",".join([f'{key}="{one.translate(_VALUE)}"' for key, one in labels])
            yield f"{name}{{{told}}} {value!r}\n"
        else:
            yield f"{name} {value!r}\n"
