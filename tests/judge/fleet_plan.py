"""A random fleet from a seed: the events that were delivered, and the books that they must lead to."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.judge.attempts import plan_job, settle
from tests.judge.job import SECOND, Job
from tests.judge.known import KnownJob
from tests.judge.reports import Reports

T0 = 1_772_452_800 * SECOND


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """`events` are wire events with node, incarnation and seq, as delivered; `now` the time of the question (ns)."""

    events: list[dict[str, Any]]
    now: int
    jobs: dict[str, KnownJob]
    duplicates: int


def plan_fleet(seed: int, size: int = 1) -> FleetPlan:
    """The same fleet for the same seed. `size` scales jobs, attempts, windows and nodes."""
    chance = random.Random(f"fleet-{seed}-{size}")
    reports = Reports(chance)
    jobs = [_job(f"job-{nth}", chance, reports, size) for nth in range(chance.randint(1, 2 * size))]
    for job in jobs:
        plan_job(job, attempts=chance.randint(1, 3 + size), rounds=3 + 3 * size)
    now = max(job.known.at for job in jobs) + chance.choice((0, 1, 30 * SECOND, 1200 * SECOND))
    for job in jobs:
        settle(job, now)
    events = reports.delivered()
    return FleetPlan(events, now, {job.name: job.known for job in jobs}, reports.duplicates)


def _job(name: str, chance: random.Random, reports: Reports, size: int) -> Job:
    nodes = [f"{name}-n{n}" for n in range(chance.choice((1, 2, 4 * size)))]
    return Job(
        name=name,
        chance=chance,
        reports=reports,
        known=KnownJob(at=T0 + chance.randint(0, 3600) * SECOND),
        nodes=nodes,
        per_node=chance.choice((1, 1, 2, 8) if size == 1 else (1, 1, 2)),
        gpus=8 * len(nodes),
        samples=chance.choice(("none", "all", "all", "some")),
        beats=chance.random() < 0.6,
        unit=1 if chance.random() < 0.2 else None,
    )
