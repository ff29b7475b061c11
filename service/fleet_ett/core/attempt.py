"""One attempt booked: from its events and what the attempts before it left, to its segments and sums.

The chain of attempts is causal: an attempt depends on its own events, on the `Carry` of the one before and
on when the next one starts (`Link`), so that new events re-book only what they can change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
from fleet_ett.core.summary import AttemptSummary, book
from fleet_ett.core.tiles import Bounds, Names, Tiles, cut_steps, rank_items

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ett_collector.wire import Event
    from fleet_ett.core.cells import Cell, Held, Work
    from fleet_ett.core.coverage import Ranges
    from fleet_ett.core.facts import Facts
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.repeats import Repeats
    from fleet_ett.core.segments import Segments
    from fleet_ett.core.steps import StepBatch, Steps

attempt_start = facts.attempt_start


@dataclass(slots=True)
class AttemptBooks:
    """The books of one attempt: the rows for the ledger and what the next attempt needs."""

    summary: AttemptSummary
    segments: Segments
    carry: Carry
    seen_before: frozenset[str]
    windows: Windows

    @property
    def cells(self) -> list[Cell]:
        """The attempt's ledger rows."""
        return cells.cells(self.segments)

    @property
    def held(self) -> list[Held]:
        """Who held others up."""
        return cells.held(self.segments)

    @property
    def work(self) -> list[Work]:
        """Start-up work with a work key."""
        return cells.work(self.segments, self.seen_before)


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
) -> AttemptBooks:
    """Book one attempt.

    `events`: all of the attempt, the heartbeats that name it, and the faults of its nodes; repeats are
    dropped. `now` (ns) is the time of the question. Raises `Unbalanced` when the books do not tile the
    attempt to the nanosecond.
    """
    return book_attempt(job, attempt, unique(events), link, now=now, policy=policy)


def book_attempt(
    job: str,
    attempt: str,
    delivered: Delivered,
    link: Link,
    *,
    now: int,
    policy: Policy,
) -> AttemptBooks:
    """`attribute_attempt` for events that are already one an identity."""
    told = facts.collect(job, attempt, delivered)
    bounds = _bounds(told, link, now)
    names = Names(told.phase_names)
    steps = cut_steps(told, bounds)
    judged = repeats.judge(told, steps, link.carry.coverage)
    chains = chained(steps, judged.verdict, repeats.SPLIT)
    tiles = nesting.flatten(rank_items(told, chains, names, bounds, policy), chains.wait, names, policy)
    first = path.first_step(tiles, steps)
    outcome = causes.outcome_of(told)
    failed = not bounds.live and outcome in ("failed", "unknown")
    track = path.job_track(told, tiles, steps, chains, first, names, bounds, policy)
    track = silence.fill(track, told, names, bounds, policy, failed=failed)
    track = track.cut(moment for moment in (first.start, first.end) if moment is not None)
    track = track.without(policy.exclude)
    track.window = chains.rows_of(track.window)
    track, replay = repeats.split(track, judged, steps)
    track, labels = places.place(track, replay, names, first, policy)
    until = booking.settled_until(told, tiles, bounds, link, now, policy)
    segments = booking.segments(told, track, labels, names, bounds, link, until, policy)
    summary = _summary(told, segments, bounds, link, tiles, first, judged, outcome, policy)
    carry = Carry(judged.coverage, link.carry.work_keys | frozenset(told.work_keys))
    flying = tiles.start[tiles.in_flight]
    windows = Windows(
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
    return AttemptBooks(summary, segments, carry, link.carry.work_keys, windows)


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
) -> AttemptSummary:
    progress = _last_progress(segments)
    tail_from = progress if progress is not None else _last_report(tiles, bounds)
    summary = AttemptSummary(
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
        first_new_at=_first(segments, "productive"),
        last_progress_at=progress,
        first_step=judged.first_step,
        last_step=judged.last_step,
        steps_productive=judged.steps_productive,
        steps_replayed=judged.steps_replayed,
        samples_replayed=judged.samples_replayed,
        loaded_step=told.loaded_step(bounds.end),
        overlapped=_overlapped(told, bounds),
        held_up_by=[[node, rank, wall] for (node, rank), wall in sorted(segments.blamed().items())],
    )
    saved = [
        e.body["step"] for e in told.checkpoints if e.body["kind"] == "save" and facts.at(e) <= bounds.end
    ]
    summary.saves, summary.durable_step = len(set(saved)), max(saved, default=None)
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


def _overlapped(told: Facts, bounds: Bounds) -> dict[str, int]:
    """Ns of background work by phase on the rank that had most of it: reported, booked nowhere."""
    spans = told.spans
    rows = np.flatnonzero(spans.overlapped)
    out: dict[str, int] = {}
    for row in rows.tolist():
        end = bounds.end if spans.end[row] < 0 else min(int(spans.end[row]), bounds.end)
        name = told.phase_names[int(spans.phase[row])]
        rank_total = f"{int(spans.rank[row])}\0{name}"
        out[rank_total] = out.get(rank_total, 0) + max(end - max(int(spans.start[row]), bounds.start), 0)
    best: dict[str, int] = {}
    for key, total in out.items():
        name = key.split("\0", 1)[1]
        best[name] = max(best.get(name, 0), total)
    return best
