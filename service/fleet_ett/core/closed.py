"""Closed sets of label values: what the taxonomy does not know is counted under a common name, never dropped."""

from __future__ import annotations

from functools import lru_cache

from fleet_ett.core.causes import KINDS
from fleet_ett.core.causes_default import CAUSES
from fleet_ett.core.taxonomy import DEFAULT, HEADINGS

OTHER = "other"
CUSTOM = "custom"
# By name of the label: the values that are known, and what all others are counted as.
SETS: dict[str, tuple[frozenset[str], str]] = {
    "component": (frozenset(DEFAULT.components), OTHER),
    "phase": (frozenset(phase.id for phase in DEFAULT.phases), CUSTOM),
    "heading": (frozenset(HEADINGS), CUSTOM),
    "cause": (frozenset(row[0] for row in CAUSES), OTHER),
    "kind": (frozenset(KINDS), OTHER),
    "repeated": (frozenset(("true", "false")), OTHER),
}


@lru_cache(maxsize=10_000)
def closed(labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Labels (name, value), each value from its closed set; names without one keep theirs."""
    return tuple((name, _closed(name, value)) for name, value in labels)


def _closed(name: str, value: str) -> str:
    if name not in SETS:
        return value
    known, common = SETS[name]
    return value if value in known else common
