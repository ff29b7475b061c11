"""Phases of all ranks as columns, and opened spans paired with the phases that close them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ett_collector.wire import Event

    Ints = NDArray[np.int64]


@dataclass(slots=True)
class Spans:
    """Phases of all ranks as columns (ns, codes into `Facts.phases`, `Facts.nodes`, `Facts.keys`).

    `end` is -1 for a span that nobody closed. `key` is -1 without a work key.
    """

    rank: Ints
    node: Ints
    start: Ints
    end: Ints
    phase: Ints
    key: Ints
    overlapped: NDArray[np.bool_]
    aborted: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rank)


def _at(event: Event) -> int:
    return (event.start or 0) - event.clock_offset_ns


def _until(event: Event) -> int:
    return (event.end or 0) - event.clock_offset_ns


def gather(
    phases: list[Event],
    opens: list[Event],
    nodes: dict[str, int],
    phase_names: dict[str, int],
    work_keys: dict[str, int],
    flags: list[dict[str, Any]],
) -> Spans:
    """The spans of one attempt; names are looked up in the codes given. A span closed twice is flagged."""
    told: dict[tuple[int | None, str], list[Event]] = {}
    for event in phases:
        if "span" in event.body:
            told.setdefault((event.rank, event.body["span"]), []).append(event)
    dropped: set[int] = set()
    for several in told.values():
        if len(several) > 1:  # closed twice: the earlier end
            several.sort(key=lambda e: (_until(e), _at(e), e.node, e.seq))
            flags.append({"flag": "conflict", "rank": several[0].rank, "node": several[0].node})
            dropped.update(id(event) for event in several[1:])
    if dropped:
        phases = [event for event in phases if id(event) not in dropped]
    still_open = {
        (e.rank, e.body["span"]): e
        for e in sorted(opens, key=lambda e: (_at(e), e.node, e.seq), reverse=True)
    }
    phases = phases + [event for key, event in still_open.items() if key not in told]
    n = len(phases)
    extra = [(i, event.body) for i, event in enumerate(phases) if len(event.body) > 1]
    key_column = np.full(n, -1, dtype=np.int64)
    overlapped = np.zeros(n, dtype=bool)
    aborted = np.zeros(n, dtype=bool)
    for i, body in extra:
        if "work_key" in body:
            key_column[i] = work_keys[body["work_key"]]
        overlapped[i] = body.get("overlapped", False)
        aborted[i] = body.get("aborted", False)

    def column(values: Iterable[int]) -> Ints:
        return np.fromiter(values, dtype=np.int64, count=n)

    return Spans(
        rank=column(event.rank or 0 for event in phases),
        node=column(nodes[event.node] for event in phases),
        start=column((event.start or 0) - event.clock_offset_ns for event in phases),
        end=column(-1 if event.end is None else event.end - event.clock_offset_ns for event in phases),
        phase=column(phase_names[event.body["phase"]] for event in phases),
        key=key_column,
        overlapped=overlapped,
        aborted=aborted,
    )
