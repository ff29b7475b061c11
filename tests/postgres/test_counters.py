"""What Prometheus counts, in a bounded number of rows, and what jobs hold now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.metrics.exporter import families
from fleet_ett.postgres import counters, rollups
from fleet_ett.postgres.counters import Counted, raise_counters
from fleet_ett.postgres.queries.metrics import read_readings
from fleet_ett.readings import HELD, MAX_TENANTS
from fleet_ett.worker import book_due_jobs, rebuild
from tests.postgres.agents import HOUR, Agent, S, crashed_and_resumed
from tests.postgres.stored import POLICY, book

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from fleet_ett.postgres.store import PostgresStore

    Rows = Callable[[str], list[tuple[Any, ...]]]
    Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]

T0 = 1_772_452_800_000_000_000  # 2026-03-02T12:00:00Z
GAUGES = ("ett_ingest_lag_seconds", "ett_attribution_lag_seconds", "ett_effective_training_ratio")


def series(engine: Engine) -> Series:
    """Every sample of the page but those that follow the clock."""
    return {
        (one.name + suffix, labels): value
        for one in families(read_readings(engine))
        for suffix, labels, value in one.samples
        if one.name not in GAUGES
    }


def raised(engine: Engine, jobs: list[Counted]) -> None:
    with engine.begin() as conn:
        raise_counters(conn, jobs)


def differences(engine: Engine) -> list[str]:
    with engine.connect() as conn:
        return counters.differences(conn)


def lost(phase: str, component: str = "unowned") -> tuple[str, tuple[tuple[str, str], ...]]:
    return "lost_gpu_seconds", (("component", component), ("phase", phase), ("repeated", "false"))


def failed(cause: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return "failures", (("cause", cause), ("component", "unowned"), ("kind", "unknown"))


@pytest.mark.usefixtures("store")
def test_jobs_phases_and_errors_make_no_series(engine: Engine, rows: Rows) -> None:
    """10,000 jobs, 5,000 names of phases and 300 of causes: as many series, and rows of totals, as of one job."""
    amounts = {
        lost("custom"): 1,
        ("gpu_seconds", (("heading", "custom"),)): S,
        ("gpu_seconds", (("heading", "productive"),)): S,
        ("wall_seconds", ()): S,
        failed("nccl_timeout"): 1,
    }
    raised(engine, [Counted(1, "c1", "ads", amounts, (1, 8, 0))])
    before = series(engine)
    rollups.fold(engine)
    totals = rows("SELECT count(*) FROM counter_totals")
    for first in range(2, 10_002, 500):
        jobs = []
        for number in range(first, first + 500):
            own = {lost(f"phase {number // 2}"): S, failed(f"because {number % 300}"): 1}
            own[("gpu_seconds", (("heading", f"custom:phase {number // 2}"),))] = S
            jobs.append(Counted(number, "c1", "ads", amounts | own, (1, 8, 0)))
        raised(engine, jobs)
    raised(engine, [Counted(1, "c1", "ads", {failed("because"): 1}, (1, 8, 0))])
    after = series(engine)
    other = (
        "ett_failures",
        (("cluster", "c1"), ("component", "unowned"), ("cause", "other"), ("kind", "unknown")),
    )
    assert {other} == after.keys() - before.keys()
    assert 10_001 == after.pop(other)
    tenant = (("cluster", "c1"), ("team", "ads"))
    assert 10_001 + 10_000 == after["ett_gpu_seconds", (*tenant, ("heading", "custom"))]
    assert 10_001 == after["ett_jobs_running", tenant]
    assert 80_008 == after["ett_gpus_allocated", tenant]
    rollups.fold(engine)
    assert totals[0][0] + 1 == rows("SELECT count(*) FROM counter_totals")[0][0]
    assert [(0,)] == rows("SELECT count(*) FROM counter_deltas")
    assert {**after, other: 10_001} == series(engine)
    assert [] == differences(engine)


@pytest.mark.usefixtures("store")
def test_teams_that_somebody_makes_up_are_others(engine: Engine, rows: Rows) -> None:
    """The first ones keep their names for ever; nothing of the rest is lost."""
    attempts = {("attempts", ()): 1}
    most = MAX_TENANTS
    raised(engine, [Counted(n, "c1", f"team-{n:04}", attempts) for n in range(most - 1)])
    raised(engine, [Counted(most + n, "c2", f"new-{n}", attempts) for n in range(3)])
    raised(
        engine, [Counted(2 * most, "c3", "x", attempts), Counted(2 * most + 1, "c1", "team-0007", attempts)]
    )
    rollups.fold(engine)
    found = {
        (dict(k[1])["cluster"], dict(k[1])["team"]): v
        for k, v in series(engine).items()
        if k[0] == "ett_attempts"
    }
    assert most + 2 == len(found)
    assert [2, 1, 2, 1] == [
        found["c1", "team-0007"], found["c2", "new-0"], found["c2", "other"], found["other", "other"],
    ]  # fmt: skip
    assert [(most,)] == rows("SELECT count(*) FROM tenants")
    assert [] == differences(engine)


def test_replicas_and_restarts_lose_and_double_nothing(store: PostgresStore, engine: Engine) -> None:
    """Two processes book, fold and rebuild, in turns; every page has at least what the page before had."""
    agent = Agent()
    for number in range(3):
        crashed_and_resumed(agent, f"j{number}", T0 + number * 60 * S)
    chunks: Iterator[list[dict[str, Any]]] = iter(
        [agent.said[n : n + 7] for n in range(0, len(agent.said), 7)]
    )
    before: Series = {}
    for step, chunk in enumerate(chunks):
        agent.hand_in(store, chunk, now=T0 + HOUR)
        book_due_jobs(engine, POLICY, clock=lambda: T0 + HOUR + step * 600 * S)  # noqa: B023 - called at once
        if step % 3 == 1:
            rollups.fold(engine)
        if step % 5 == 4:
            rebuild(engine, POLICY, as_of=T0 + HOUR + step * 600 * S)
        engine.dispose()  # as a process that starts anew
        after = series(engine)
        counted = {key: value for key, value in before.items() if key[0].removeprefix("ett_") not in HELD}
        assert {} == {
            key: (value, after.get(key)) for key, value in counted.items() if after.get(key, -1) < value
        }
        before = after
    book(engine, T0 + 24 * HOUR)
    rollups.fold(engine)
    assert [] == differences(engine)


def test_what_jobs_hold_follows_them(store: PostgresStore, engine: Engine) -> None:
    """From the first booking to the last, and to the team that the job names meanwhile."""
    agent = Agent()
    agent.say("attempt_start", job="j", attempt="a", ts=T0, gpus=16)
    agent.hand_in(store, now=T0)

    def held(cluster: str, team: str) -> list[float | None]:
        found, tenant = series(engine), (("cluster", cluster), ("team", team))
        return [found.get((f"ett_{name}", tenant)) for name in HELD]

    book(engine, T0 + 10 * S)
    assert [1, 16, 0] == held("", "")
    agent.hand_in(store, [agent.say("job", job="j", cluster="c1", team="ads")], now=T0 + 20 * S)
    book(engine, T0 + 50 * S)  # past the pace of a job that took long
    assert [[0, 0, 0], [1, 16, 0]] == [held("", ""), held("c1", "ads")]
    rebuild(engine, POLICY, as_of=T0 + 55 * S)
    assert [[0, 0, 0], [1, 16, 0]] == [held("", ""), held("c1", "ads")]
    agent.hand_in(
        store, [agent.say("attempt_end", job="j", attempt="a", ts=T0 + 60 * S, outcome="completed")]
    )
    book(engine, T0 + 24 * HOUR)
    assert [[0, 0, 0], [0, 0, 0]] == [held("", ""), held("c1", "ads")]
    assert [] == differences(engine)


def test_gpus_of_a_silent_job_are_held_without_progress(store: PostgresStore, engine: Engine) -> None:
    """A step that takes longer than ETT_HANG_S counts, unless a phase is announced, nobody is heard, or it ends."""
    agent, who = Agent(), {"job": "j", "attempt": "a"}
    tenant = (("cluster", ""), ("team", ""))

    def stuck(at: int, *events: dict[str, Any]) -> float | None:
        agent.hand_in(store, list(events), now=T0 + at * S)
        book(engine, T0 + at * S)
        return series(engine).get(("ett_gpus_without_progress", tenant))

    def alive(at: int) -> dict[str, Any]:
        return agent.say("heartbeat", ts=T0 + at * S, jobs=[{**who, "ranks": [0]}])

    def stepped(first: int, start: int, end: int) -> dict[str, Any]:
        steps = {"rank": 0, "first": first, "last": first + 9, "start": T0 + start * S, "end": T0 + end * S}
        return agent.say("steps", **who, **steps)

    def opened(phase: str, start: int, **more: int) -> dict[str, Any]:
        told = {"rank": 0, "phase": phase, "start": T0 + start * S, "span": phase}
        return agent.say("phase_open", **who, **told, **more)

    start = agent.say("attempt_start", **who, ts=T0, gpus=16, nodes=["n1"])
    assert not stuck(110, start, stepped(0, 0, 100), opened("step_new_data", 100, step=10), alive(110))
    assert not stuck(670, alive(670))
    assert 16 == stuck(710, alive(710))
    assert not stuck(800)
    assert not stuck(1000, stepped(10, 100, 990), alive(1000))
    assert not stuck(2000, opened("checkpoint_load", 995), alive(2000))


def test_silence_is_counted_once(store: PostgresStore, engine: Engine) -> None:
    """Whether it is a stall or unknown is not known until ETT_HANG_S is over: not settled until then."""
    agent, who = Agent(), {"job": "j", "attempt": "a"}
    agent.say("attempt_start", **who, ts=T0, gpus=1, nodes=["n1"])
    agent.say("steps", **who, rank=0, first=0, last=9, start=T0, end=T0 + 100 * S)
    for at in range(100, 1000, 100):
        agent.say("heartbeat", ts=T0 + at * S, jobs=[{**who, "ranks": [0]}])
        agent.hand_in(store, now=T0 + at * S)
        book(engine, T0 + at * S)
        amounts = {
            dict(labels)["heading"]: value
            for (name, labels), value in series(engine).items()
            if name == "ett_gpu_seconds" and value
        }
        assert {"productive": 100} | ({"stall": at - 100} if at >= 700 else {}) == amounts
