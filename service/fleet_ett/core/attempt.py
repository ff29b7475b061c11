"""One attempt booked: from its events and what the attempts before it left, to its segments and sums.

The chain of attempts is causal: an attempt depends on its own events, on the `Carry` of the one before and
on when the next one starts (`Link`), so that new events re-book only what they can change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core import (
    booking,
    causes,
    cells,
    facts,
    nesting,
    path,
    places,
    repeats,
    silence,
)
from fleet_ett.core.chains import chained
from fleet_ett.core.identity import Delivered, unique
from fleet_ett.core.link import Carry, Link
from fleet_ett.core.past import NOTHING
from fleet_ett.core.seam import Booking, most, next_seam, overlapped, saved_steps
from fleet_ett.core.summary import SILENT_HEADINGS, AttemptSummary, book
from fleet_ett.core.tiles import Bounds, Names, Tiles, cut_steps, rank_items

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ett_collector.wire import Event
    from fleet_ett.core.cells import Cell, Held, Work
    from fleet_ett.core.chains import Chains
    from fleet_ett.core.coverage import Ranges
    from fleet_ett.core.facts import Facts
    from fleet_ett.core.places import Labels
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.repeats import Repeats
    from fleet_ett.core.resume import Resume
    from fleet_ett.core.segments import Segments
    from fleet_ett.core.steps import StepBatch, Steps
    from fleet_ett.core.track import Track

attempt_start = facts.attempt_start


@dataclass(slots=True)
class AttemptBooks:
    """The books of one attempt: the rows for the ledger and what the next attempt needs.

    `resumed`: where this booking went on, None for the whole; `segments`, `cells` and `held` then hold what is not
    kept from before (see `core.resume`). `resume`: where the next booking may go on, None for nowhere yet.
    `windows`: None where the booking did not see them all.
    """

    summary: AttemptSummary
    segments: Segments
    carry: Carry
    seen_before: frozenset[str]
    windows: Windows | None
    resumed: Resume | None = None
    resume: Resume | None = None

    @property
    def cells(self) -> list[Cell]:
        """The attempt's ledger rows."""
        own = cells.cells(self.segments)
        return own if self.resumed is None else cells.with_cells(self.resumed.cells, own)

    @property
    def held(self) -> list[Held]:
        """Who held others up."""
        own = cells.held(self.segments)
        return own if self.resumed is None else cells.with_held(self.resumed.held, own)

    @property
    def work(self) -> list[Work]:
        """Start-up work with a work key."""
        own = cells.work(self.segments, self.seen_before)
        return own if self.resumed is None else cells.with_work(self.resumed.work, own)


@dataclass(slots=True)
class Windows:
    """What the `goodput` view needs: the pieces of the track and the step windows that they belong to.

    `start`, `end` (ns), `window`, `count`, `phase` and `heading` by piece, a piece of step time standing for
    `count` windows from `window` on; `headings` and `badput` by code.
    `in_flight_from` (ns) is the start of the step in flight at the end, `reported_until` (ns) the end of
    the last thing reported.
    """

    steps: Steps
    where: Ranges
    first: path.FirstStep
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    window: NDArray[np.int64]
    count: NDArray[np.int64]
    phase: NDArray[np.int16]
    heading: NDArray[np.int16]
    headings: list[str]
    badput: list[str | None]
    in_flight_from: int | None
    reported_until: int


def attribute_attempt(
    job: str,
    attempt: str,
    events: Iterable[Event | StepBatch],
    link: Link,
    *,
    now: int,
    policy: Policy,
    resume: Resume | None = None,
) -> AttemptBooks:
    """Book one attempt.

    `events`: all of the attempt, the heartbeats that name it, and the faults of its nodes; repeats are
    dropped. `now` (ns) is the time of the question. `resume`: where an earlier booking left off; `events` then
    need to hold only what `core.resume` asks for. Raises `Unbalanced` when the books do not tile the
    attempt to the nanosecond, `Stale` when they cannot go on from `resume`.
    """
    return book_attempt(job, attempt, unique(events), link, now=now, policy=policy, resume=resume)


def book_attempt(
    job: str,
    attempt: str,
    delivered: Delivered,
    link: Link,
    *,
    now: int,
    policy: Policy,
    resume: Resume | None = None,
) -> AttemptBooks:
    """`attribute_attempt` for events that are already one an identity."""
    past = NOTHING
    if resume is not None:
        delivered, past = resume.later(delivered), resume.past
    told = facts.collect(job, attempt, delivered, past)
    bounds = _bounds(told, link, now)
    read = booked = bounds
    if resume is not None:
        resume.check(link, told, bounds)
        read, booked = replace(bounds, start=resume.read_from), replace(bounds, start=resume.books_from)
    names = Names(told.phase_names)
    steps = cut_steps(told, read)
    judged = repeats.judge(told, steps, link.carry.coverage, past)
    chains = chained(steps, judged.verdict, repeats.SPLIT)
    items = rank_items(told, chains, names, read, policy)
    tiles = nesting.flatten(items, chains.wait, names, policy)
    first = path.first_step(items, steps) if resume is None else resume.first
    outcome = causes.outcome_of(told)
    failed = not bounds.live and outcome in ("failed", "unknown")
    track = path.job_track(told, tiles, steps, chains, first, names, read, policy)
    spoken_until = int(track.end.max()) if len(track) else read.start
    track = silence.fill(track, told, names, read, policy, failed=failed)
    track = track.cut(moment for moment in (first.start, first.end, booked.start) if moment is not None)
    track = track.without(policy.exclude)
    track.window = chains.rows_of(track.window)
    track, replay = repeats.split(track, judged, steps)
    if booked.start > read.start:
        kept = np.flatnonzero(track.start >= booked.start)
        track, replay = track.take(kept), replay[kept]
    track, labels = places.place(track, replay, names, first, policy)
    until = booking.settled_until(told, tiles, bounds, link, now, policy)
    if bounds.live and bounds.end - spoken_until <= policy.hang_ns:  # unknown or a stall: nobody knows yet
        until = min(until, spoken_until)
    segments = booking.segments(told, track, labels, names, booked, link, until, policy)
    summary = _summary(told, segments, bounds, link, tiles, first, judged, outcome, policy, resume)
    carry = Carry(judged.coverage, link.carry.work_keys.union(told.work_keys, past.work_keys))
    books = AttemptBooks(summary, segments, carry, link.carry.work_keys, None, resume, resume)
    reduced = Booking(delivered, told, bounds, tiles, steps, judged, first, books, link)
    books.resume = next_seam(reduced, now=now, policy=policy) or resume
    if resume is None:
        books.windows = _windows(track, labels, names, chains, tiles, judged, steps, first, bounds, policy)
    return books


def _windows(  # noqa: PLR0913, PLR0917 - the pieces of a track and all that they stand for
    track: Track,
    labels: Labels,
    names: Names,
    chains: Chains,
    tiles: Tiles,
    judged: Repeats,
    steps: Steps,
    first: path.FirstStep,
    bounds: Bounds,
    policy: Policy,
) -> Windows:
    flying = tiles.start[tiles.in_flight]
    return Windows(
        steps,
        judged.where,
        first,
        track.start,
        track.end,
        track.window,
        chains.counts_of(track.window),
        track.phase.astype(np.int16),
        labels.heading.astype(np.int16),
        labels.headings,
        [policy.taxonomy.phase(name).badput for name in names.names],
        int(flying.min()) if len(flying) else None,
        _last_report(tiles, bounds),
    )


def _bounds(told: Facts, link: Link, now: int) -> Bounds:
    end = told.end
    if link.next_start is not None and (end is None or end > link.next_start):
        if end is not None:
            told.flag("overlapping_attempt", amount=end - link.next_start)
        end = link.next_start
    live = end is None or end > now
    if live:
        end = now
    return Bounds(min(told.start, end or 0), end or 0, live)


def _summary(  # noqa: PLR0913, PLR0917 - everything that an attempt came to, each of its own kind
    told: Facts,
    segments: Segments,
    bounds: Bounds,
    link: Link,
    tiles: Tiles,
    first: path.FirstStep,
    judged: Repeats,
    outcome: str,
    policy: Policy,
    resume: Resume | None,
) -> AttemptSummary:
    past = NOTHING if resume is None else resume.past
    progress = _last_progress(segments)
    tail_from = progress if progress is not None else _last_report(tiles, bounds)
    begin = AttemptSummary if resume is None else resume.summary
    first_new = _first(segments, "productive") if resume is None else resume.sums.first_new_at
    held = segments.blamed()
    for node, rank, wall in () if resume is None else resume.sums.held_up_by:
        held[node, rank] = held.get((node, rank), 0) + wall
    summary = begin(
        attempt=told.attempt,
        index=link.index,
        start=bounds.start,
        end=None if bounds.live else bounds.end,
        live=bounds.live,
        outcome="unknown" if bounds.live else outcome,
        gpus=told.gpus,
        world_size=told.world_size,
        nodes=list(told.nodes),
        settled_until=segments.settled_until,
        first_step_at=first.start,
        first_new_at=first_new,
        last_progress_at=progress,
        first_step=judged.first_step,
        last_step=judged.last_step,
        silent_since=_silent_since(told, segments, bounds, policy),
        steps_productive=judged.steps_productive,
        steps_replayed=judged.steps_replayed,
        samples_replayed=judged.samples_replayed,
        loaded_step=told.loaded_step(bounds.end),
        overlapped=most(overlapped(told, bounds, past)),
        held_up_by=[[node, rank, wall] for (node, rank), wall in sorted(held.items())],
    )
    saved = saved_steps(told, bounds, past)
    summary.saves, summary.durable_step = len(saved), max(saved, default=None)
    l2_of = {label[1]: policy.taxonomy.phase(label[1]).meta_l2 for label in segments.labels}
    book(summary, segments, l2_of, tail_from, first.start)
    hung = _hung_since(segments, tail_from, policy)
    summary.failure = causes.failure(told, bounds, progress, hung, link.next_start, policy)
    unknown = summary.headings.get("unknown", [0])[0]
    if unknown * 100 > summary.wall_ns:
        told.flag("unknown_share", amount=unknown)
    summary.flags = sorted(told.flags, key=lambda flag: json.dumps(flag, sort_keys=True))
    return summary


def _hung_since(segments: Segments, tail_from: int, policy: Policy) -> int | None:
    """Since when (ns) the attempt hung until its end; a hang that resolved before explains nothing."""
    codes = [i for i, label in enumerate(segments.labels) if label[0] == "stall"]
    rows = np.flatnonzero(np.isin(segments.label, codes) & (segments.start >= tail_from))
    stalled = int((segments.end - segments.start)[rows].sum())
    return int(segments.start[rows[0]]) if stalled > policy.hang_ns else None


def _silent_since(told: Facts, segments: Segments, bounds: Bounds, policy: Policy) -> int | None:
    """See `AttemptSummary.silent_since`. A step in flight is silence, an announced phase is not."""
    beat = int(told.beat_at[-1]) if len(told.beat_at) else None
    if not bounds.live or beat is None or bounds.end - beat > policy.heartbeat_ns:
        return None
    silent = [i for i, label in enumerate(segments.labels) if label[0] in SILENT_HEADINGS]
    shown = np.flatnonzero(~np.isin(segments.label, silent) & (segments.end <= bounds.end))
    since = int(segments.end[shown[-1]]) if len(shown) else bounds.start
    return since if bounds.end - since > policy.hang_ns else None


def _last_report(tiles: Tiles, bounds: Bounds) -> int:
    return int(tiles.end.max()) if len(tiles.end) else bounds.start


def _last_progress(segments: Segments) -> int | None:
    """The end of the last step time of the job (ns)."""
    codes = [i for i, label in enumerate(segments.labels) if label[0] in ("productive", "replay")]
    rows = np.flatnonzero(np.isin(segments.label, codes))
    return int(segments.end[rows[-1]]) if len(rows) else None


def _first(segments: Segments, heading: str) -> int | None:
    codes = [i for i, label in enumerate(segments.labels) if label[0] == heading]
    rows = np.flatnonzero(np.isin(segments.label, codes))
    return int(segments.start[rows[0]]) if len(rows) else None
