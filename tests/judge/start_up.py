"""The start-up of an attempt: ranks go through the start phases, some late, some slow, some with a barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.judge.known import LOOP, START
from tests.judge.spans import Span, sweep

if TYPE_CHECKING:
    from tests.judge.job import Job


def start_up(job: Job, *, dies: bool) -> None:
    """Plan everything before the first step; with `dies` only up to a moment within it."""
    begin = job.known.at
    ragged = not dies and job.odds(0.25)  # ranks begin to step when they are ready, not together
    delay = job.ms(0, 20_000) if not ragged and job.odds(0.2) else 0
    first = {rank: begin + job.chance.randint(0, delay) for rank in job.ranks}
    spans = _spans(job, first, ragged=ragged)
    told = max(first.values())  # until then some rank has said nothing, and it is furthest behind
    end = max(span.end for span in spans)
    job.ready = {rank: max(s.end for s in spans if s.rank == rank) for rank in job.ranks} if ragged else {}
    if dies:
        end = job.chance.randint(told + 1, end)
    job.lay(told, "unaccounted", "unknown")
    for piece in sweep(spans, told, end):
        assert piece.phase is not None
        job.lay(piece.end, piece.phase, "startup", piece.rank)
    for span in spans:
        job.tell(span, end if dies else None)
    if not dies and not ragged and job.odds(0.3):
        job.lay(end + job.ms(10, 90_000), "unaccounted", "unknown")


def _spans(job: Job, first: dict[int, int], *, ragged: bool) -> list[Span]:
    """The start phases of all ranks from when each begins; every rank has the first one.

    Phases of the loop count as start-up here too. One may have begun before the allocation was told, and
    some have another one inside.
    """
    phases = [phase for phase in START if job.odds(0.35)] or ["rendezvous"]
    if not ragged and job.odds(0.3):
        phases.insert(job.chance.randint(1, len(phases)), job.chance.choice(list(LOOP)))
    barrier = not ragged and job.odds(0.5)
    now = dict(first)
    spans: list[Span] = []
    for nth, phase in enumerate(phases):
        for rank in job.ranks:
            if nth and job.odds(0.1):
                continue
            lasting = job.ms(200, 60_000) * (4 if job.odds(0.1) else 1)
            before = job.ms(0, 5000) if not nth and first[rank] == job.known.at and job.odds(0.05) else 0
            spans.append(Span(rank, phase, now[rank] - before, now[rank] + lasting))
            if job.odds(0.15):
                low = now[rank] + job.chance.randint(1, lasting // 2)
                high = job.chance.randint(low + 1, now[rank] + lasting)
                spans.append(Span(rank, job.chance.choice([p for p in START if p != phase]), low, high))
            now[rank] += lasting
        if barrier:
            now = dict.fromkeys(now, max(now.values()))
    return spans
