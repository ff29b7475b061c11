"""Which series there are: those of the first clusters and teams, with all values of the closed label sets.

Every series of a cluster exists as 0 from its first booking on, so that a first increment shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.core.causes import kind_of
from fleet_ett.core.causes_default import CAUSES
from fleet_ett.core.closed import CUSTOM, OTHER
from fleet_ett.core.taxonomy import DEFAULT, HEADINGS, STEP, UNOWNED
from fleet_ett.readings import MAX_TENANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleet_ett.metrics.families import Counter


class Tenants:
    """Which clusters and teams have series of their own: the first ones that the books heard of."""

    def __init__(self, tenants: Sequence[tuple[str, str]]) -> None:
        self.pairs = frozenset(tenants[:MAX_TENANTS])
        self.clusters = frozenset(cluster for cluster, _ in self.pairs)

    def cluster(self, name: str) -> str:
        """The cluster's label."""
        return name if name in self.clusters else OTHER

    def pair(self, cluster: str, team: str) -> tuple[str, str]:
        """The labels of a cluster and a team."""
        return self.cluster(cluster), team if (cluster, team) in self.pairs else OTHER

    def shown(self) -> list[tuple[str, str]]:
        """Every pair of labels that a series may have."""
        return sorted(self.pairs)


def zeros(counter: Counter, tenants: Tenants) -> Iterator[tuple[str, ...]]:
    """The label values that a counter has from a cluster's first booking on."""
    if "team" in counter.labels:
        for pair in tenants.shown():
            if "heading" in counter.labels:
                yield from ((*pair, heading) for heading in (*HEADINGS, CUSTOM))
            else:
                yield pair
        return
    for cluster in sorted(tenants.clusters):
        yield from ((cluster, *rest) for rest in _zeros_of(counter.labels[1:]))


def _zeros_of(labels: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    if labels == ("component", "phase", "repeated"):
        lost = [(phase.owner, phase.id) for phase in DEFAULT.phases if phase.id != STEP]
        return [(*pair, repeated) for pair in (*lost, (UNOWNED, CUSTOM)) for repeated in ("false", "true")]
    if labels == ("component", "cause"):
        return [(owner, cause) for cause, _, _, owner in CAUSES]
    return [(owner, cause, kind_of(cause)) for cause, _, _, owner in CAUSES]
