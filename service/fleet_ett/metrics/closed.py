"""Closed label sets: what is not in the taxonomy is counted under a common name, never dropped.

Every series of a cluster exists as 0 from its first event on, so that a first increment shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.core.causes import KINDS, kind_of
from fleet_ett.core.causes_default import CAUSES
from fleet_ett.core.taxonomy import DEFAULT, HEADINGS, STEP
from fleet_ett.metrics.families import CUSTOM, MAX_TENANTS, OTHER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleet_ett.metrics.families import Counter

_COMPONENTS = frozenset(DEFAULT.components)
_PHASES = frozenset(phase.id for phase in DEFAULT.phases)
_HEADINGS = frozenset(HEADINGS)
_CAUSES = {row[0]: row for row in CAUSES}


class Tenants:
    """Which clusters and teams have series of their own: the first ones that the books heard of.

    The order is of their first jobs, which does not change: a series that was once shown by name stays.
    """

    def __init__(self, tenants: Sequence[tuple[str, str]]) -> None:
        self.clusters = frozenset(list(dict.fromkeys(cluster for cluster, _ in tenants))[:MAX_TENANTS])
        self.pairs = frozenset(tenants[:MAX_TENANTS])

    def cluster(self, name: str) -> str:
        """The cluster's label."""
        return name if name in self.clusters else OTHER

    def pair(self, cluster: str, team: str) -> tuple[str, str]:
        """The labels of a cluster and a team."""
        return self.cluster(cluster), team if (cluster, team) in self.pairs else OTHER

    def shown(self) -> list[tuple[str, str]]:
        """Every pair of labels that a series may have."""
        return sorted(self.pairs)


def closed_labels(labels: dict[str, str], tenants: Tenants) -> dict[str, str]:
    """The labels of one counter of the books, each from its closed set."""
    out = dict(labels)
    if "team" in out:
        out["cluster"], out["team"] = tenants.pair(out.get("cluster", ""), out["team"])
    else:
        out["cluster"] = tenants.cluster(out.get("cluster", ""))
    for name, known, common in (
        ("component", _COMPONENTS, OTHER),
        ("phase", _PHASES, CUSTOM),
        ("heading", _HEADINGS, CUSTOM),
        ("cause", _CAUSES, OTHER),
        ("kind", KINDS, OTHER),
        ("repeated", ("true", "false"), OTHER),
    ):
        if name in out and out[name] not in known:
            out[name] = common
    return out


def zeros(counter: Counter, tenants: Tenants) -> Iterator[tuple[str, ...]]:
    """The label values that a counter has from a cluster's first event on."""
    if "team" in counter.labels:
        for pair in tenants.shown():
            if "heading" in counter.labels:
                yield from ((*pair, heading) for heading in HEADINGS)
            else:
                yield pair
        return
    for cluster in sorted(tenants.clusters):
        yield from ((cluster, *rest) for rest in _zeros_of(counter.labels[1:]))


def _zeros_of(labels: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    if labels == ("component", "phase", "repeated"):
        lost = [(phase.owner, phase.id) for phase in DEFAULT.phases if phase.id != STEP]
        return [(*pair, repeated) for pair in lost for repeated in ("false", "true")]
    if labels == ("component", "cause"):
        return [(owner, cause) for cause, _, _, owner in CAUSES]
    return [(owner, cause, kind_of(cause)) for cause, _, _, owner in CAUSES]
