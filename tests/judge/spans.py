"""Who is furthest behind: spans of ranks within a stretch of a plan, swept into pieces of the job's time."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from tests.judge.known import BEHIND


class Span(NamedTuple):
    """A blocking phase of one rank, in ns."""

    rank: int
    phase: str
    start: int
    end: int


class Piece(NamedTuple):
    """A stretch of the job's time; `phase` None where no rank is in a blocking phase."""

    start: int
    end: int
    phase: str | None
    rank: int | None


def sweep(spans: list[Span], start: int, end: int) -> list[Piece]:
    """The pieces of [start, end): in each, the phase furthest behind and the lowest rank in it.

    Within one rank the innermost span counts: the one that began last, of equals the shorter.
    """
    cuts = sorted({start, end, *(s.start for s in spans), *(s.end for s in spans)})
    out: list[Piece] = []
    for low, high in pairwise(cuts):
        if low < start or high > end:
            continue
        inner: dict[int, Span] = {}
        for span in spans:
            known = inner.get(span.rank)
            if span.start <= low < span.end and (known is None or _within(span, known)):
                inner[span.rank] = span
        behind = min(inner.values(), key=lambda s: (BEHIND[s.phase], s.rank), default=None)
        out.append(Piece(low, high, behind and behind.phase, behind and behind.rank))
    return out


def _within(span: Span, other: Span) -> bool:
    return (span.start, -span.end) > (other.start, -other.end)
