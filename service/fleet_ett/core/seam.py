"""Chooses where the next booking of an attempt may go on, and reduces what lies before it.

A seam is a border of two segments in settled, healthy time: all ranks step on new data around it, and no report
reaches over both ends of the warm-up. Where that cannot be had there is none, and the next booking reads more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core import facts
from fleet_ett.core.cells import cells, held, with_cells, with_held, with_work, work
from fleet_ett.core.identity import Delivered
from fleet_ett.core.intervals import IntervalSet
from fleet_ett.core.past import NOTHING, TOO_FAR, Past, RankTable
from fleet_ett.core.policy import HOUR
from fleet_ett.core.repeats import NEW, portion
from fleet_ett.core.resume import Resume, is_later, taken
from fleet_ett.core.summary import TAIL_HEADINGS, AttemptSummary, book

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fleet_ett.core.attempt import AttemptBooks
    from fleet_ett.core.facts import Facts
    from fleet_ett.core.link import Link
    from fleet_ett.core.path import FirstStep
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.repeats import Repeats
    from fleet_ett.core.segments import Segments
    from fleet_ett.core.steps import Steps
    from fleet_ett.core.tiles import Bounds, Tiles

    Ints = NDArray[np.int64]

TRIES = 8  # borders that are looked at
OF_EVENTS = ("conflict", "name_cut", "clock_jump")  # flags that single events raise
MOST = 50_000  # entries of any one kind that a seam may carry


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking just made, with what it was made from."""

    delivered: Delivered
    told: Facts
    bounds: Bounds
    tiles: Tiles
    steps: Steps
    judged: Repeats
    first: FirstStep
    books: AttemptBooks
    link: Link

    @property
    def past(self) -> Past:
        """What lay before this booking's events."""
        return NOTHING if self.books.resumed is None else self.books.resumed.past


def next_seam(made: Booking, *, now: int, policy: Policy) -> Resume | None:
    """The newest seam that is worth its while; None where there is none."""
    first, where = made.first, made.judged.where
    if not made.bounds.live or first.end is None or not len(made.steps):
        return None
    alike = bool((where.sampled == where.sampled[0]).all())
    if not alike or where.unit_unclear or where.scale != 1 or int(made.steps.last.max()) >= TOO_FAR:
        return None
    old = made.books.resumed
    for books_from in _borders(made, now, policy):
        read_from = books_from - policy.warm_up_ns
        if read_from >= max(first.end, 0 if old is None else old.read_from) and _is_sound(
            made, read_from, books_from
        ):
            found = _resume(made, read_from, books_from, policy)
            return None if _is_large(found.past) else found
    return None


def _borders(made: Booking, now: int, policy: Policy) -> Iterator[int]:
    """Where settled time turns from something healthy to productive time, the newest first."""
    segments, old = made.books.segments, made.books.resumed
    headings = [label[0] for label in segments.labels]
    productive = np.array([one == "productive" for one in headings] or [False])
    unsound = np.array([one in TAIL_HEADINGS for one in headings] or [False])
    after = made.bounds.start if old is None else old.books_from
    border = productive[segments.label[1:]] & ~unsound[segments.label[:-1]]
    border &= segments.start[1:] == segments.end[:-1]
    moments = segments.start[1:][border]
    late = min(now - policy.lateness_ns, segments.settled_until)
    fit = moments[(moments <= late) & (moments >= after + policy.seam_ns)]
    yield from fit[::-1][:TRIES].tolist()


def _is_sound(made: Booking, read_from: int, books_from: int) -> bool:
    """Whether what began before the warm-up has no say in what is booked after it."""
    steps, spans, tiles, past = made.steps, made.told.spans, made.tiles, made.past
    early = steps.start < read_from
    early_spans = spans.start < read_from
    # as reported: `made.steps` are cut to the attempt, and what was cut is flagged when it ends
    if (steps.end[early] > books_from).any() or (made.told.steps.start < made.bounds.start).any():
        return False
    ends = spans.end[early_spans]
    if (ends < 0).any() or (ends > books_from).any() or (spans.start < made.bounds.start).any():
        return False
    around = (steps.end > read_from) & (steps.start <= books_from)
    if (made.judged.verdict[around] != NEW).any():
        return False
    stepping = np.union1d(past.table.rank, steps.rank[early])
    if not np.isin(stepping, steps.rank[~early]).all():
        return False
    final = np.flatnonzero(np.append(tiles.rank[1:] != tiles.rank[:-1], True))
    going_on = tiles.rank[final][tiles.end[final] > books_from]
    if not np.isin(stepping, going_on).all():
        return False
    aborted = np.unique(spans.rank[spans.aborted & early_spans])
    return bool(np.isin(aborted, going_on).all())


def _resume(made: Booking, read_from: int, books_from: int, policy: Policy) -> Resume:
    old, told, books = made.books.resumed, made.told, made.books
    settled = _until(books.segments, books_from)
    sums = _no_sums(made, books_from) if old is None else old.summary(settled_until=books_from)
    l2_of = {label[1]: policy.taxonomy.phase(label[1]).meta_l2 for label in settled.labels}
    book(sums, settled, l2_of, books_from, made.first.start)
    blamed = settled.blamed()
    for node, rank, wall in sums.held_up_by:
        blamed[node, rank] = blamed.get((node, rank), 0) + wall
    sums.held_up_by = [[node, rank, wall] for (node, rank), wall in sorted(blamed.items())]
    sums.first_new_at = books.summary.first_new_at
    hour = books_from // HOUR * HOUR
    before = ((), (), ()) if old is None else (old.cells, old.held, old.work)
    return Resume(
        read_from,
        books_from,
        made.link.index,
        made.link.carry.digest(),
        made.first,
        sums,
        tuple(one for one in with_cells(before[0], cells(settled)) if one.hour == hour),
        tuple(one for one in with_held(before[1], held(settled)) if one.hour == hour),
        tuple(with_work(before[2], work(settled, books.seen_before))),
        _past(made, told, read_from),
    )


def _no_sums(made: Booking, books_from: int) -> AttemptSummary:
    whole = made.books.summary
    return AttemptSummary(
        attempt=whole.attempt,
        index=whole.index,
        start=whole.start,
        end=None,
        live=True,
        outcome=whole.outcome,
        gpus=whole.gpus,
        world_size=whole.world_size,
        nodes=[],
        settled_until=books_from,
    )


def _until(segments: Segments, moment: int) -> Segments:
    """The segments up to one of their borders, all settled."""
    n = int(np.searchsorted(segments.start, moment))
    names = ("start", "end", "label", "rank", "node", "key", "gpus", "ahead")
    return replace(segments, settled_until=moment, **{name: getattr(segments, name)[:n] for name in names})


def _past(made: Booking, told: Facts, read_from: int) -> Past:
    delivered, past = made.delivered, made.past
    early = [taken(one, one.start - one.clock_offset_ns < read_from) for one in delivered.batches]
    before = facts.collect(
        told.job,
        told.attempt,
        Delivered(
            [one for one in delivered.events if not is_later(one, read_from)],
            [one for one in early if len(one)],
            0,
            0,
            [one for one in delivered.conflicted if not is_later(one, read_from)],
        ),
        past,
    )
    rows = np.flatnonzero(made.steps.start < read_from)
    where = made.judged.where
    ranks = np.unique(np.concatenate((before.spans.rank, before.steps.rank)))
    return Past(
        start=told.start,
        gpus=told.gpus,
        table=past.table.followed_by(_table(made, rows)),
        coverage=where.add_to(past.coverage if len(past.table) else made.link.carry.coverage, rows),
        sampled=bool(where.sampled[0]),
        unit=bool(where.unit),
        unsampled=past.unsampled + int((~where.sampled[rows]).sum()),
        ranks=past.ranks | IntervalSet.of(ranks, ranks + 1),
        nodes=tuple(before.node_names),
        last_word=before.last_word,
        beats={node: stamps[-1] for node, stamps in before.beats.items()},
        flags=[one for one in before.flags if one["flag"] in OF_EVENTS],
        skews={one["node"]: one["amount"] for one in before.flags if one["flag"] == "clock_skew"},
        work_keys=tuple(sorted({*past.work_keys, *before.work_keys})),
        saved=tuple(sorted(saved_steps(before, made.bounds, past))),
        load=max(before.loads, default=None),
        # of the spans as booked: what was closed by a later report is not open in those before it
        overlapped=overlapped(told, made.bounds, past, before=read_from),
    )


def _table(made: Booking, rows: Ints) -> RankTable:
    """The windows of those rows, by rank."""
    if not len(rows):
        return NOTHING.table
    steps, judged = made.steps.take(rows), made.judged
    where, part, whole = judged.where, judged.part[rows], judged.whole[rows]
    low, high = where.low[rows], where.high[rows]
    sampled = where.sampled[rows]
    samples = np.where(sampled, where.to[rows] - where.from_[rows], 0)
    leading = steps.leading()
    ends = np.append(leading[1:], len(steps))
    inner = np.arange(len(steps))
    jump = np.zeros(len(steps), dtype=np.int64)
    jump[1:] = low[1:] - high[:-1]
    jump[leading] = 0
    groups = [slice(int(a), int(b)) for a, b in zip(leading, ends, strict=True)]
    base = made.link.carry.coverage
    return RankTable(
        rank=steps.rank[leading],
        reach=np.maximum.reduceat(where.to[rows] if sampled.all() else high, leading),
        tail=high[ends - 1],
        jump=np.maximum(np.maximum.reduceat(jump, leading), 0),
        first=steps.first[leading],
        last=np.maximum.reduceat(steps.last, leading),
        loaded=_column(_loaded(made.told, int(moment)) for moment in steps.start[leading]),
        total=np.add.reduceat(high - low, leading),
        again=_column(portion((high - low)[g], part[g], whole[g]) for g in groups),
        fresh=_column(
            where.add_to(base, rows[inner[g]]).steps().size() - base.steps().size() for g in groups
        ),
        samples=_column(portion(samples[g], part[g], whole[g]) for g in groups),
    )


def _loaded(told: Facts, moment: int) -> int:
    step = told.loaded_step(moment)
    return -1 if step is None else step


def _column(values: Iterator[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _is_large(past: Past) -> bool:
    entries = (past.saved, past.flags, past.work_keys, past.nodes, *past.overlapped.values())
    return max(map(len, entries)) > MOST


def saved_steps(told: Facts, bounds: Bounds, past: Past) -> set[int]:
    """The steps whose checkpoints were durable by the attempt's end."""
    saves = (one for one in told.checkpoints if one.body["kind"] == "save" and facts.at(one) <= bounds.end)
    return {*past.saved, *(one.body["step"] for one in saves)}


def overlapped(
    told: Facts, bounds: Bounds, past: Past, *, before: int | None = None
) -> dict[str, dict[int, int]]:
    """Ns of background work by phase and rank: reported, booked nowhere; `before`: of spans that began earlier."""
    spans = told.spans
    out = {name: dict(by_rank) for name, by_rank in past.overlapped.items()}
    wanted = spans.overlapped if before is None else spans.overlapped & (spans.start < before)
    for row in np.flatnonzero(wanted).tolist():
        end = bounds.end if spans.end[row] < 0 else min(int(spans.end[row]), bounds.end)
        by_rank = out.setdefault(told.phase_names[int(spans.phase[row])], {})
        rank = int(spans.rank[row])
        by_rank[rank] = by_rank.get(rank, 0) + max(end - max(int(spans.start[row]), bounds.start), 0)
    return out


def most(by_phase: dict[str, dict[int, int]]) -> dict[str, int]:
    """By phase, the ns on the rank that had most of them."""
    return {name: max(by_rank.values()) for name, by_rank in by_phase.items()}
