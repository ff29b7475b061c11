"""Attempts of a plan: allocation, life, end with its evidence, the gap, and where the next one resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.judge.between import HANG_NS, between, finish, tell_saves
from tests.judge.ends import COMPLETED, FAILURES, LOST, PLANNED, RESIZED, End
from tests.judge.job import SECOND, Saved
from tests.judge.known import Incident
from tests.judge.start_up import start_up
from tests.judge.windows import windows

if TYPE_CHECKING:
    from tests.judge.job import Job

BEAT_NS = 25 * SECOND


def plan_job(job: Job, attempts: int, rounds: int) -> None:
    """Plan all attempts of a job with up to `rounds` of windows each. The last may stay live (`settle`)."""
    for index in range(attempts):
        last = index == attempts - 1
        end = _choose_end(job, last=last)
        _begin(job, index)
        dies = end in FAILURES and job.odds(0.15)
        start_up(job, dies=dies)
        if not dies:
            for nth in range(job.chance.randint(1, rounds)):
                if nth:
                    between(job)
                windows(job)
            if last and job.odds(0.25):
                job.live = job.chance.choice(("phase", "step", "silent"))
                return
            finish(job, end)
        _release(job, end, last=last)
        if not last:
            _gap(job, end)
            _resume(job, end)


def settle(job: Job, now: int) -> None:
    """Book a live attempt up to the time of the question (ns)."""
    if job.live is None:
        return
    silent_for = now - job.known.at
    if job.live == "phase":
        for rank in job.ranks:
            job.say(rank, "phase_open", phase="evaluation", start=job.known.at, span="open")
        job.lay(now, "evaluation", "evaluation", job.ranks[0])
    elif job.live == "step" and silent_for <= HANG_NS:
        for rank in job.ranks:
            job.say(rank, "phase_open", phase="step_new_data", start=job.known.at, span="open")
        job.lay(now, "unaccounted", "unknown")
    else:
        hangs = job.beats and silent_for > HANG_NS
        job.lay(now, "hang" if hangs else "unaccounted", "stall" if hangs else "unknown")
    tell_saves(job, now)
    _heartbeats(job, now)


def _choose_end(job: Job, *, last: bool) -> End:
    if last:
        return job.chance.choice((COMPLETED, COMPLETED, *FAILURES[:3]))
    if job.odds(0.15):
        return RESIZED
    if not job.beats and job.odds(0.1):
        return LOST
    return job.chance.choice(PLANNED if job.odds(0.3) else FAILURES)


def _begin(job: Job, index: int) -> None:
    job.attempt, job.began, job.started, job.tail = f"try-{index}", job.known.at, False, 0
    job.late_end = False
    job.with_samples = job.samples == "all" or (job.samples == "some" and job.odds(0.5))
    job.known.attempts += 1
    world = len(job.nodes) * job.per_node
    job.mute = job.chance.randrange(world) if world > 1 and job.odds(0.1) else None
    fields: dict[str, Any] = {"released_between": False} if job.kept else {}
    if job.unit is not None:
        job.unit = job.chance.choice((1, 1, 2, 4))
    if job.per_node == 8:
        fields["world_size"] = job.gpus  # the only word on GPUs
    elif job.odds(0.5):
        fields["gpus_by_node"] = dict.fromkeys(job.nodes, job.gpus // len(job.nodes))
    else:
        fields["gpus"] = job.gpus
    if job.odds(0.7):
        fields["nodes"] = job.nodes
    if index and job.odds(0.2):
        job.reports.restart_agent(job.nodes[0])
    for node in job.nodes if job.odds(0.3) else job.nodes[:1]:
        job.reports.add(node, "attempt_start", job=job.name, attempt=job.attempt, ts=job.began, **fields)


def _release(job: Job, end: End, *, last: bool) -> None:
    """End the attempt now, with its evidence, and open the incident that the next attempt pays for."""
    now = job.known.at
    tell_saves(job, now)
    _heartbeats(job, now)
    job.paying = None
    if end is COMPLETED:
        _end_event(job, end, now)
        return
    faulty: str | None = None
    if end.fault is not None:
        faulty = job.chance.choice(job.nodes)
        named = {"job": job.name, "attempt": job.attempt} if end.fault["kind"] != "xid" else {}
        job.reports.add(faulty, "fault", ts=max(job.began, now - job.ms(0, 2000)), **named, **end.fault)
    if end is not LOST:
        if job.odds(0.15):  # the launcher's word, before the scheduler's
            _end_event(job, End(end.outcome, "", "", None), max(job.began, now - job.ms(0, 3000)))
        job.late_end = not last and end.failed and job.odds(0.07)
        _end_event(job, end, now + (job.ms(1, 4000) if job.late_end else 0))
    job.paying = Incident(end.kind, end.component, end.cause, faulty, tail=job.tail)
    job.known.incidents.append(job.paying)


def _end_event(job: Job, end: End, now: int) -> None:
    job.reports.add(
        job.nodes[0],
        "attempt_end",
        job=job.name,
        attempt=job.attempt,
        ts=now,
        outcome=end.outcome,
        **end.fields,
    )


def _heartbeats(job: Job, until: int) -> None:
    """Each node's heartbeats up to just before `until`."""
    if not job.beats:
        return
    for place, node in enumerate(job.nodes):
        ranks = [rank for rank in job.ranks if rank // job.per_node == place]
        beat = job.began + job.ms(0, 20_000)
        stamps = [*range(beat, until, BEAT_NS), max(job.began, until - 1)]
        for stamp in stamps:
            job.reports.add(
                node, "heartbeat", ts=stamp, jobs=[{"job": job.name, "attempt": job.attempt, "ranks": ranks}]
            )


def _gap(job: Job, end: End) -> None:
    job.kept = end is RESIZED or job.odds(0.3)
    if end is LOST or job.late_end:  # its hardware is held until the next attempt starts
        return
    lasting = job.ms(0, 5000) if end is RESIZED else 0 if job.odds(0.1) else job.ms(1000, 600_000)
    held, begun = job.gpus, job.known.at
    job.gpus = held if job.kept else 0
    job.known.lay(begun + lasting, "requeue_wait", "gap", job.gpus)
    job.gpus = held
    assert job.paying is not None
    job.paying.gap = lasting


def _resume(job: Job, end: End) -> None:
    """Where the next attempt begins: on other hardware, from a durable checkpoint, or from the start."""
    if end is RESIZED and len(job.nodes) > 1:
        job.nodes = job.nodes[: len(job.nodes) // 2]
        job.gpus = 8 * len(job.nodes)
        job.batch = max(job.batch // 2, 1) if job.samples == "all" else job.batch
    elif job.odds(0.1) and not job.late_end:
        job.nodes = [*job.nodes[:-1], f"{job.nodes[-1]}x"]
    if end is RESIZED and job.odds(0.5):
        return
    durable = [saved for saved in job.saves if saved.at <= job.known.at]
    if not durable:
        found = Saved(1, 0, 0)
    elif job.odds(0.2):
        found = job.chance.choice(durable)
    else:
        found = max(durable, key=lambda saved: (saved.at, saved.step))
    job.step, job.cursor = found.step, found.cursor
