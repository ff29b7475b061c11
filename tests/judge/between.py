"""What happens between step windows, and what is left open when an attempt ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.judge.ends import COMPLETED, LOST, End
from tests.judge.job import SECOND, Saved
from tests.judge.known import END, LOOP, heading
from tests.judge.spans import Span, sweep

if TYPE_CHECKING:
    from tests.judge.job import Job

HANG_NS = 600 * SECOND  # the threshold of the contract


def between(job: Job) -> None:
    """Plan something that is no step; all ranks wait for those that do it."""
    what = job.chance.choice(("nothing", "save", "async save", "phase", "silence", "hang"))
    if what == "save":
        _block(job, "checkpoint_save_block")
        _save(job, job.known.at)
    elif what == "async save":
        _block(job, "checkpoint_save_block")
        until = job.known.at + job.ms(1000, 200_000)
        job.uploads.append((job.chance.choice(job.ranks), job.known.at, Saved(job.step, job.cursor, until)))
    elif what == "phase":
        _block(job, job.chance.choice([*LOOP, "compile_cold"]))
    elif what == "silence" and not job.beats:  # short silence beside heartbeats is left to the scenarios
        job.lay(job.known.at + job.ms(10, 300_000), "unaccounted", "unknown")
    elif what == "hang" and job.odds(0.1):
        _silence(job, HANG_NS + job.ms(1000, 300_000))


def finish(job: Job, end: End) -> None:
    """Plan the time from the last window to the release."""
    if end is LOST:
        job.lay(job.known.at + job.ms(1000, 200_000), "unaccounted", "unknown")
    elif end is COMPLETED:
        _wind_down(job)
    else:
        how = job.chance.choice(("now", "step", "save", "silence", "hang"))
        if how == "step":
            _cut_off(job, "step_new_data", job.ranks)
        elif how == "save":
            _cut_off(job, "checkpoint_save_block", job.some_ranks())
        elif how == "silence" and end.failed:
            _silence(job, job.ms(100, 300_000))
        elif how == "hang":
            _silence(job, HANG_NS + job.ms(1000, 900_000))


def tell_saves(job: Job, now: int) -> None:
    """Report the asynchronous saves of an attempt that ends (or is asked about) at `now`."""
    for rank, start, saved in job.uploads:
        fields = {"phase": "checkpoint_save_async", "start": start, "overlapped": True}
        if saved.at <= now:
            job.say(rank, "phase", end=saved.at, **fields)
            _save(job, saved.at, saved)
        elif start < now:
            job.say(rank, "phase_open", span=f"upload-{start}", **fields)
    job.uploads.clear()


def _save(job: Job, at: int, saved: Saved | None = None) -> None:
    saved = saved or Saved(job.step, job.cursor, at)
    job.saves.append(saved)
    job.say(job.chance.choice(job.ranks), "checkpoint", step=saved.step - 1, ts=at, kind="save")


def _block(job: Job, phase: str) -> None:
    begin = job.known.at
    spans = [Span(rank, phase, begin, begin + job.ms(100, 40_000)) for rank in job.some_ranks()]
    for piece in sweep(spans, begin, max(span.end for span in spans)):
        job.lay(piece.end, phase, heading(phase, started=True), piece.rank)
    for span in spans:
        job.tell(span)


def _silence(job: Job, lasting: int) -> None:
    phase, booked = ("hang", "stall") if job.beats else ("unaccounted", "unknown")
    job.lay(job.known.at + lasting, phase, booked)


def _cut_off(job: Job, phase: str, ranks: list[int]) -> None:
    """Something in flight on some ranks that the attempt's end cuts off."""
    begin = job.known.at
    end = begin + job.ms(10, 50_000)
    for rank in ranks:
        job.tell(Span(rank, phase, begin, end + 1), end)
    if phase == "step_new_data":
        job.lay(end, "step_aborted", "aborted_step")
    else:
        job.lay(end, phase, heading(phase, started=True), min(ranks))


def _wind_down(job: Job) -> None:
    last = list(END)[-1]
    for phase, (_, booked) in END.items():
        if job.odds(0.5):
            begin = job.known.at
            end = begin + job.ms(500, 30_000)
            over = job.ms(1, 5000) if phase == last and job.odds(0.2) else 0  # cut at the release
            for rank in job.ranks:
                job.tell(Span(rank, phase, begin, end + over))
            job.lay(end, phase, booked)
            if over:
                return
    if job.odds(0.3):
        job.lay(job.known.at + job.ms(10, 60_000), "unaccounted", "unknown")
