"""Step windows of a plan: what is new, what is repeated, what waits and what blocks inside.

`length` is the net time of one step in ns, `count` the steps of a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.judge.job import BLOCK
from tests.judge.known import LOOP, heading
from tests.judge.spans import Span, sweep

if TYPE_CHECKING:
    from tests.judge.job import Job

EARLY = ["compile_cold", "kernel_autotune", "process_group_init"]  # seen inside the first window
LATE = [*LOOP, "compile_cold", "process_group_init"]


def windows(job: Job) -> None:
    """Plan the next window or windows on all ranks."""
    if job.ready:
        _ragged(job)
    elif job.odds(0.2):
        _skewed(job)
    else:
        _window(job)


def _ragged(job: Job) -> None:
    """The first window, begun by each rank as soon as it is ready."""
    count, length = _uniform(job, job.chance.randint(1, 12)), job.ms(200, 8000)
    end = job.known.at + count * length
    for rank in job.ranks:
        _tell(job, rank, (job.ready[rank], end), (0, count), 0)
    job.ready = {}
    _book(job, [], end, _covered(job, count) * length)
    _advance(job, count)


def _skewed(job: Job) -> None:
    """Several windows in a row that each rank begins and ends a little later than the first rank.

    What is repeated ends where the slowest rank is through with it.
    """
    skews = {rank: job.ms(0, 150) for rank in job.ranks}
    skews[job.chance.choice(job.ranks)] = 0
    slowest, begin = max(skews.values()), job.known.at
    for _ in range(job.chance.randint(2, 5)):
        count, length = _uniform(job, job.chance.randint(1, 8)), job.ms(200, 4000)
        end = begin + count * length
        for rank, skew in skews.items():
            _tell(job, rank, (begin + skew, end + skew), (0, count), 0)
        _book(job, [], end + slowest, (end + slowest - job.known.at) if _covered(job, count) else 0)
        _advance(job, count)
        begin = end


def _uniform(job: Job, count: int) -> int:
    """As many steps that are all repeated or all new."""
    again = _covered(job, count)
    return again or count


def _window(job: Job) -> None:
    """One window from a barrier on: waits first, spans inside, ranks that end a little early."""
    count, length, begin = job.chance.randint(1, 12), job.ms(200, 8000), job.known.at
    plain = job.odds(0.4)
    waits = {rank: 0 if plain or job.odds(0.6) else job.ms(1, 5000) for rank in job.ranks}
    wait = max(waits.values())
    spans = [] if plain or job.odds(0.4) else _inside(job, begin + wait, count * length)
    lost = sum(p.end - p.start for p in sweep(spans, begin, begin + 10**15) if p.phase)
    end = begin + wait + lost + count * length
    again = _covered(job, count)
    waiting = [Span(rank, "data_stall", begin, begin + waits[rank]) for rank in job.ranks]
    for piece in sweep(waiting, begin, begin + wait):
        job.lay(piece.end, "data_stall", "data_wait", piece.rank)
    _book(job, spans, end, again * length)
    for span in spans:
        job.tell(span)
    slow = job.chance.choice(job.ranks)
    for rank in job.ranks:
        early = 0 if plain or rank == slow or job.odds(0.5) else job.chance.randint(0, length // 10)
        cut = job.chance.randint(1, count) if plain and job.odds(0.5) else count
        _tell(job, rank, (begin, begin + cut * length if cut < count else end - early), (0, cut), waits[rank])
        if cut < count:
            _tell(job, rank, (begin + cut * length, end), (cut, count), 0)
    _advance(job, count)


def _advance(job: Job, count: int) -> None:
    again = _covered(job, count)
    job.known.steps["productive"] += count - again
    job.known.steps["replayed"] += again
    for nth in range(count):
        job.covered |= _places(job, nth)
    job.step += count
    job.cursor += count * job.batch
    job.started = True


def _book(job: Job, spans: list[Span], end: int, repeated: int) -> None:
    """Lay the window after its waits: spans by name, of the net time `repeated` ns first as replay."""
    for piece in sweep(spans, job.known.at, end):
        if piece.phase is not None:
            job.lay(piece.end, piece.phase, heading(piece.phase, started=job.started), piece.rank)
            continue
        replay = min(repeated, piece.end - piece.start)
        job.lay(piece.start + replay, "step_replayed", "replay")
        job.lay(piece.end, "step_new_data", "productive")
        repeated -= replay


def _inside(job: Job, begin: int, net: int) -> list[Span]:
    """Blocking spans of some ranks in the first half of a window, perhaps one of another kind across them."""
    choice = LATE if job.started else EARLY
    start = begin + job.chance.randint(0, net // 2)
    phase, other = job.chance.choice(choice), job.chance.choice(choice)
    spans = [Span(rank, phase, start, start + job.ms(50, 20_000)) for rank in job.some_ranks()]
    if other == phase or job.odds(0.5):
        return spans
    end = max(span.end for span in spans)
    rank = job.chance.choice(job.ranks)
    low = job.chance.randint(start + 1, end - 2)
    mine = next((span for span in spans if span.rank == rank and span.end > low + 1), None)
    high = job.chance.randint(low + 1, mine.end) if mine else end + job.ms(1, 5000)
    return [*spans, Span(rank, other, low, high)]


def _tell(job: Job, rank: int, when: tuple[int, int], part: tuple[int, int], wait: int) -> None:
    first, last, unit = job.step + part[0], job.step + part[1] - 1, job.unit or 1
    fields: dict[str, Any] = {"first": (first - 1) * unit + 1, "last": last * unit}
    if job.unit is not None:
        fields["unit"] = "micro_batch" if unit > 1 else "optimizer_step"
        if unit > 1 or job.odds(0.3):
            fields["per_optimizer_step"] = unit
    if job.with_samples:
        fields["cursor_start"] = (job.cursor + part[0] * job.batch) * BLOCK
        fields["cursor_end"] = (job.cursor + part[1] * job.batch) * BLOCK
    if wait:
        fields["data_wait"] = wait
    job.say(rank, "steps", start=when[0], end=when[1], **fields)


def _places(job: Job, nth: int) -> set[int]:
    """What the nth step from here trains on."""
    if job.samples != "all":
        return {job.step + nth}
    return set(range(job.cursor + nth * job.batch, job.cursor + (nth + 1) * job.batch))


def _covered(job: Job, count: int) -> int:
    """How many of the next steps have been trained on: always the first ones, as plans leave no holes."""
    again = [_places(job, nth) <= job.covered for nth in range(count)]
    assert again == sorted(again, reverse=True)
    return sum(again)
