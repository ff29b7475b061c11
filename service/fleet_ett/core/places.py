"""From phases to headings: the place of a phase in its attempt decides what it books.

Before the first step everything is start-up; PT2 compilation is start-up until the first step window has
ended and `compile` after it; the end phases book publish or shutdown (accounting.md, sections 2 and 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core.taxonomy import ABORTED, GAP, HANG, REPLAY, STEP, UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.path import FirstStep
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.taxonomy import Phase
    from fleet_ett.core.tiles import Names
    from fleet_ett.core.track import Track

    Ints = NDArray[np.int64]

COMPILE_BUCKET = "pt2_compile"
_BY_NAME = (
    HANG,
    UNKNOWN,
    ABORTED,
    STEP,
    REPLAY,
    GAP,
)  # what the core books itself has one heading anywhere


@dataclass(slots=True)
class Labels:
    """What the pieces of a track are booked as: codes into `headings` (strings) by piece."""

    heading: Ints
    headings: list[str]


def place(
    track: Track,
    replay: NDArray[np.bool_],
    names: Names,
    first: FirstStep,
    policy: Policy,
) -> tuple[Track, Labels]:
    """Label every piece with its heading; replayed step time gets the phase `step_replayed`.

    The track must have been cut at the first step's start and its window's end (`FirstStep`).
    """
    phases = [policy.taxonomy.phase(name) for name in [*names.names, REPLAY]]
    headings: dict[str, int] = {}

    def codes(place: int) -> Ints:
        return np.array(
            [headings.setdefault(_heading(p, place), len(headings)) for p in phases],
            dtype=np.int64,
        )

    by_place = np.stack([codes(0), codes(1), codes(2)])
    moment = np.zeros(len(track), dtype=np.int64)
    if first.start is not None and first.end is not None:
        moment = (track.start >= first.start).astype(np.int64) + (track.start >= first.end)
    phase = np.where(replay, names.code(REPLAY), track.phase)
    track.phase = phase
    return track, Labels(by_place[moment, phase], list(headings))


def _heading(phase: Phase, place: int) -> str:
    """The heading of a phase before the first step (0), inside its window (1), after it (2)."""
    if phase.id in _BY_NAME or phase.stage == "end":
        return phase.heading
    if phase.meta_l2 == COMPILE_BUCKET or phase.heading == "compile":
        return "startup" if place < 2 else "compile"
    return "startup" if place == 0 else phase.heading
