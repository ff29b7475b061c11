"""Phases and components: looked up, never branched on.

A `Taxonomy` is rows; the ids of phases are interned to small integers (codes) that the numpy passes
carry. Unknown phase names are custom phases: they get a code of their own, block where they stand and
belong to nobody until somebody maps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet_ett.core.phases_default import COMPONENTS, PHASES

# Headings of the ledger (accounting.md, section 2). `custom:<name>` is the one open family.
HEADINGS: tuple[str, ...] = (
    "productive",
    "replay",
    "startup",
    "data_wait",
    "checkpoint",
    "compile",
    "evaluation",
    "publish",
    "shutdown",
    "stall",
    "gap",
    "aborted_step",
    "unknown",
)
L2_BUCKETS: tuple[str, ...] = (
    "scheduling",
    "hardware_setup",
    "launcher_init",
    "trainer_init",
    "pt2_compile",
    "effective_training",
    "wasted_training",
    "shutdown",
)
# Phases that the core books itself.
STEP, REPLAY, ABORTED, HANG, UNKNOWN, GAP, WAIT, LOAD = (
    "step_new_data",
    "step_replayed",
    "step_aborted",
    "hang",
    "unaccounted",
    "requeue_wait",
    "data_stall",
    "checkpoint_load",
)
UNOWNED = "unowned"


@dataclass(frozen=True, slots=True)
class Phase:
    """One kind of time: who owns it, where it stands in the life of an attempt, what it books."""

    id: str
    stage: str  # schedule, recover, start, train, end, any
    owner: str  # component
    kind: str  # productive, lost, overlappable, external
    meta_l2: str
    badput: str | None  # the bucket of ml-goodput-measurement, for the goodput view
    heading: str  # what it books once the first step has begun


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """The phases in the order of start-up, and the components that own them."""

    phases: tuple[Phase, ...]
    components: tuple[str, ...]
    _by_id: dict[str, Phase] = field(init=False, repr=False, compare=False, default_factory=dict)
    _order: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for order, phase in enumerate(self.phases):
            self._by_id[phase.id] = phase
            self._order[phase.id] = order

    def phase(self, name: str) -> Phase:
        """The phase of that name; an unknown name is a custom phase, owned by nobody."""
        known = self._by_id.get(name)
        if known is not None and known.heading != "custom":
            return known
        if known is not None:
            return Phase(
                name,
                "train",
                known.owner,
                known.kind,
                known.meta_l2,
                known.badput,
                f"custom:{name}",
            )
        return Phase(
            name,
            "train",
            UNOWNED,
            "lost",
            "wasted_training",
            "CUSTOM_BADPUT_EVENTS",
            f"custom:{name}",
        )

    def order(self, name: str) -> int:
        """The place in taxonomy order; custom phases come last."""
        return self._order.get(name, len(self.phases))


DEFAULT = Taxonomy(
    tuple(Phase(*row) for row in PHASES),
    tuple(component for component, _ in COMPONENTS),
)
