"""Windows over days, hours and parts of hours: every figure is the sum of the segments, folded or not."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.postgres import rollups
from tests.citus import no_citus
from tests.http.story import HOUR, T0, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.http.service import Service

DAY = 24 * HOUR
MIDNIGHT = T0 - 12 * HOUR  # 2026-03-02, a Monday
END = T0 + 9 * DAY
AMOUNTS = ("wall_ns", "gpu_ns", "productive_wall_ns", "productive_gpu_ns", "settled_wall_ns")


@dataclass(frozen=True)
class Segment:
    """A stretch of a job as the books have it."""

    job: str
    cluster: str
    team: str
    model: str
    start: int
    end: int
    heading: str
    phase: str
    component: str
    gpus: int


def long_job(name: str, start: float, days: float, gpus: int, **meta: str) -> Job:
    """Compiles, trains over days with a stall of data in between, dies, comes again and trains on."""
    half = days * 43_200
    at = start
    job = Job(name, gpus, f"node-{name}", dict(meta)).begin(at)
    job.phase("compile_cold", at, at + 1800, work_key=f"graph-{meta.get('model')}")
    job.steps(1, 1000, at + 1800, at + half / 2).phase("evaluation", at + half / 2, at + half / 2 + 7000)
    job.phase(f"own_{meta.get('model')}", at + half / 2 + 7000, at + half / 2 + 7500)
    job.steps(1001, 2000, at + half / 2 + 7500, at + half).saved(1900, at + half - 60)
    job.end(at + half, "failed", exit_code=1)
    at += half + 3000
    job.begin(at).phase("compile_cold", at, at + 900, work_key=f"graph-{meta.get('model')}").steps(
        1901, 3000, at + 900, at + half
    )
    return job.end(at + half)


@pytest.fixture(scope="module", autouse=True)
def books(service: Service) -> None:
    """Seven jobs of ten days: four are folded into the sums, of the others a part that what follows puts right."""
    told = [
        long_job("a", -30_000, 6.3, 8, cluster="c1", team="ads", model="m1"),
        long_job("b", 10_000, 3.1, 64, cluster="c1", team="feed", model="m2"),
        long_job("c", 100_001.5, 0.4, 16, cluster="c2", team="ads", model="m1"),
        long_job("d", 200_000, 2.2, 8, cluster="c2", team="feed", model="m2"),
        long_job("e", 260_000.000000001, 4.0, 1000, cluster="c3", team="ads", model="m3"),
        long_job("f", 7200, 0.35, 8, cluster="c3", team="ads", model="m1"),
        long_job("g", 600_000, 1.0, 8),
    ]
    service.book(*told[:4], now=END)
    service.book_events([event for job in told[4:] for event in job.events()[:-3]], now=END - 2 * DAY)
    rollups.fold(service.engine)
    service.book(*told[4:], now=END)


@pytest.fixture(scope="module")
def segments(service: Service) -> list[Segment]:
    """All there are."""
    query = (
        "SELECT job, cluster, team, model, s.start_ns, s.end_ns, heading, phase, component, gpus"
        " FROM segments s JOIN jobs USING (job_id)"
    )
    with service.engine.connect() as conn:
        return [Segment(*row) for row in conn.exec_driver_sql(query)]


def period(moment: int, by: str) -> int:
    """The start of the period that a moment lies in."""
    length = {"hour": HOUR, "day": DAY, "week": 7 * DAY}[by]
    return moment - (moment - MIDNIGHT) % length


def pieces(one: Segment, low: int, high: int) -> list[tuple[int, int]]:
    """The segment in the window, cut at full hours: (start, length)."""
    out = []
    at = max(one.start, low)
    while at < min(one.end, high):
        following = min(period(at, "hour") + HOUR, one.end, high)
        out.append((at, following - at))
        at = following
    return out


def expected(
    segments: list[Segment], low: int, high: int, by: tuple[str, ...], chosen: Callable[[Segment], bool]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The figures of each group, added up one by one."""
    sums: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: dict.fromkeys(AMOUNTS, 0))
    of_jobs: dict[tuple[Any, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    headings: dict[tuple[Any, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for one in filter(chosen, segments):
        for at, length in pieces(one, low, high):
            key = tuple(
                period(at, name) if name in ("hour", "day", "week") else getattr(one, name) for name in by
            )
            useful = length if one.heading == "productive" else 0
            told = (length, length * one.gpus, useful, useful * one.gpus, length)
            for name, amount in zip(AMOUNTS, told, strict=True):
                sums[key][name] += amount
            weights = of_jobs[key][one.job]
            weights[0] += length
            weights[1] += useful
            headings[key][one.heading][0] += length
            headings[key][one.heading][1] += length * one.gpus
    return {
        key: amounts
        | {
            "jobs": len(of_jobs[key]),
            "ett_job_weighted": pytest.approx(
                sum(useful / length for length, useful in of_jobs[key].values()) / len(of_jobs[key])
            ),
            "ett_settled": pytest.approx(amounts["productive_gpu_ns"] / amounts["gpu_ns"])
            if amounts["gpu_ns"]
            else None,
            "headings": {heading: wall for heading, (wall, _) in headings[key].items()},
            "gpu_headings": {heading: gpu for heading, (_, gpu) in headings[key].items() if gpu},
        }
        for key, amounts in sums.items()
    }


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the answer without headings of which nothing is."""
    kept = {
        name: {heading: ns for heading, ns in row[name].items() if ns}
        for name in ("headings", "gpu_headings")
    }
    return row | kept


def windows() -> list[tuple[int, int]]:
    """Windows of all kinds: any nanoseconds, full hours and days, within an hour, before and after all."""
    chance = random.Random(5)
    out = [
        (MIDNIGHT - DAY, END),
        (MIDNIGHT + DAY, MIDNIGHT + 4 * DAY),
        (MIDNIGHT + DAY, MIDNIGHT + DAY + 1),
        (MIDNIGHT + 2 * DAY - 1, MIDNIGHT + 2 * DAY + 1),
        (MIDNIGHT + 30 * HOUR, MIDNIGHT + 31 * HOUR),
        (MIDNIGHT + 30 * HOUR + 5, MIDNIGHT + 30 * HOUR + 77),
        (MIDNIGHT + 23 * HOUR + 5, MIDNIGHT + 25 * HOUR - 5),
        (END, END + HOUR),
        # most of a cut day lies in the window, at its start, its end, or both
        (MIDNIGHT + DAY + HOUR - 5, MIDNIGHT + 6 * DAY),
        (MIDNIGHT + DAY, MIDNIGHT + 6 * DAY + 22 * HOUR + 7),
        (MIDNIGHT + DAY + 7 * HOUR + 3, MIDNIGHT + 4 * DAY + 19 * HOUR),
        (MIDNIGHT + DAY + 7 * HOUR, MIDNIGHT + DAY + 8 * HOUR + 20 * HOUR),
    ]
    for _ in range(5):
        low, high = sorted(chance.randrange(MIDNIGHT - HOUR, MIDNIGHT + 10 * DAY) for _ in range(2))
        out.append((low, high))
    return out


@pytest.mark.parametrize(
    "by",
    [
        "",
        "cluster",
        "team",
        "model",
        "job",
        "hour",
        "day",
        "week",
        "cluster,team",
        "model,team,cluster",
        "job,day",
        "team,day",
        "hour,team",
        "team,hour",
        "cluster,team,day",
        "team,hour,cluster",
    ],
)
def test_groups_of_any_window_are_the_segments(service: Service, segments: list[Segment], by: str) -> None:
    names = tuple(by.split(",")) if by else ()
    for low, high in windows():
        wanted = expected(segments, low, high, names, lambda _: True)
        more = {"by": by} if by else {}
        if names:
            rows = service.pages(
                "/v1/fleet/ett", from_=low, to=high, limit=5 if len(wanted) < 50 else 37, **more
            )
        else:
            row = service.get("/v1/fleet/ett", from_=low, to=high)
            rows = [row] if row["wall_ns"] else []
        found = {tuple(row[name] for name in names): told(row) for row in rows}
        assert sorted(wanted) == list(found), (low, high)
        for key, amounts in wanted.items():
            assert amounts == {name: found[key][name] for name in amounts}, (low, high, key)


@pytest.mark.parametrize(
    "by", ["cluster", "team", "model,team", "cluster,team", "day", "week", "hour", "team,day"]
)
def test_the_total_is_the_same_whatever_it_is_made_of(service: Service, by: str) -> None:
    """Of the groups where one page has them all, of the jobs where not."""
    for low, high in windows():
        parts = ("by", "items", "next")
        alone = service.get("/v1/fleet/ett", from_=low, to=high)
        for limit in (1, 1000):
            total = service.get("/v1/fleet/ett", from_=low, to=high, by=by, limit=limit)
            assert {k: v for k, v in alone.items() if k not in parts} == {
                k: v for k, v in total.items() if k not in parts
            }


@pytest.mark.parametrize(
    ("filters", "chosen"),
    [
        ({"team": "ads"}, lambda one: one.team == "ads"),
        ({"team": "ads", "model": "m1"}, lambda one: (one.team, one.model) == ("ads", "m1")),
        ({"job": ["a", "e"]}, lambda one: one.job in ("a", "e")),
        ({"cluster": ""}, lambda one: one.cluster == ""),
    ],
)
@pytest.mark.parametrize("by", ["", "day", "hour", "job"])
def test_filters_choose_the_same_segments(
    service: Service,
    segments: list[Segment],
    by: str,
    filters: dict[str, Any],
    chosen: Callable[[Segment], bool],
) -> None:
    names = (by,) if by else ()
    for low, high in windows()[::4]:
        wanted = expected(segments, low, high, names, chosen)
        if names:
            rows = service.pages("/v1/fleet/ett", from_=low, to=high, by=by, limit=50, **filters)
        else:
            row = service.get("/v1/fleet/ett", from_=low, to=high, **filters)
            rows = [row] if row["wall_ns"] else []
        found = {tuple(row[name] for name in names): told(row) for row in rows}
        assert sorted(wanted) == list(found)
        for key, amounts in wanted.items():
            assert amounts == {name: found[key][name] for name in amounts}


@pytest.mark.parametrize("by", ["cluster", "cluster,team", "job", "day", "week"])
@pytest.mark.parametrize(
    "filters",
    [{"component": "compiler"}, {"phase": "own_m1"}, {"cause": "user_code_exception", "team": "ads"}],
)
def test_filters_by_what_happened_choose_jobs(
    service: Service, segments: list[Segment], by: str, filters: dict[str, str]
) -> None:
    """Few of the fleet or most of it: the groups are those of the jobs that were chosen."""
    names = tuple(by.split(","))
    chosen: set[str] = set()
    for low, high in windows()[::3]:
        jobs = {row["job"] for row in service.pages("/v1/jobs", from_=low, to=high, **filters)}
        wanted = expected(segments, low, high, names, lambda one, jobs=jobs: one.job in jobs)
        rows = service.pages("/v1/fleet/ett", from_=low, to=high, by=by, limit=50, **filters)
        found = {tuple(row[name] for name in names): told(row) for row in rows}
        assert sorted(wanted) == list(found), (low, high)
        for key, amounts in wanted.items():
            assert amounts == {name: found[key][name] for name in amounts}, (low, high, key)
        chosen |= jobs
    assert chosen


@pytest.mark.parametrize(
    "by",
    [
        "component",
        "phase",
        "heading",
        "job",
        "team",
        "day",
        "component,day",
        "job,component",
        "team,phase",
        "component,job",
        "component,cluster,team",
    ],
)
@pytest.mark.parametrize("filters", [{}, {"component": "compiler"}, {"team": "ads"}, {"phase": "evaluation"}])
def test_losses_are_the_segments_that_were_not_productive(
    service: Service, segments: list[Segment], by: str, filters: dict[str, Any]
) -> None:
    names = tuple(by.split(","))

    def chosen(one: Segment) -> bool:
        lost = one.heading != "productive"
        return lost and all(getattr(one, name) == value for name, value in filters.items())

    for low, high in windows()[1::5]:
        wanted = expected(segments, low, high, names, chosen)
        rows = service.pages("/v1/fleet/lost-time", from_=low, to=high, by=by, limit=3, **filters)
        keys = [tuple(row[name] for name in names) for row in rows]
        assert sorted(set(keys)) == keys
        assert all(row["direct_ns"] or row["incidents"] for row in rows)
        found = {tuple(row[name] for name in names): row for row in rows if row["direct_ns"]}
        assert sorted(wanted) == sorted(found)
        for key, amounts in wanted.items():
            assert (amounts["wall_ns"], amounts["gpu_ns"]) == tuple(
                found[key][name] for name in ("direct_ns", "direct_gpu_ns")
            )


@pytest.mark.parametrize("filters", [{}, {"job": ["a", "e", "g", "c"]}, {"team": "ads"}])
@pytest.mark.parametrize("component", ["compiler", "model_owner", "checkpoint"])
def test_the_worst_jobs_are_those_that_lost_most_in_the_window(
    service: Service, component: str, filters: dict[str, Any]
) -> None:
    """Also those that the window cuts, which lost more in all of their lives."""
    found = []
    for low, high in windows():
        asked = {"component": component, **filters}
        rows = service.pages("/v1/fleet/lost-time", from_=low, to=high, by="job", **asked)
        rows.sort(key=lambda row: (-max(row["direct_gpu_ns"], row["induced_gpu_ns"]), row["job"]))
        names = ("job", "direct_gpu_ns", "induced_gpu_ns")
        for most in (1, 2, 10):
            page = service.get(f"/v1/components/{component}", from_=low, to=high, worst=most, **filters)
            worst = [tuple(row[name] for name in names) for row in page["worst_jobs"]]
            assert [tuple(row[name] for name in names) for row in rows[:most]] == worst, (low, high, most)
            found += worst
    assert len({job for job, *_ in found}) > 2


@pytest.mark.parametrize("filters", [{"component": "compiler"}, {"phase": "evaluation"}])
def test_jobs_that_lost_time_so_in_an_hour_of_the_window(
    service: Service, segments: list[Segment], filters: dict[str, str]
) -> None:
    ((name, value),) = filters.items()
    for low, high in windows():
        first, last = period(low, "hour"), -(-high // HOUR) * HOUR
        wanted = {
            one.job
            for one in segments
            if getattr(one, name) == value and one.start < last and one.end > first and low < high
        }
        wanted &= {one.job for one in segments if one.start < high and one.end > low}
        rows = service.pages("/v1/jobs", from_=low, to=high, **filters)
        assert wanted == {row["job"] for row in rows}
        total = service.get("/v1/fleet/ett", from_=low, to=high, **filters)
        sums = expected(segments, low, high, (), lambda one, wanted=wanted: one.job in wanted)
        assert sums.get((), {"jobs": 0})["jobs"] == total["jobs"]
        assert sums.get((), {"gpu_ns": 0})["gpu_ns"] == total["gpu_ns"]
        for row in rows:
            (own,) = expected(segments, low, high, (), lambda one, row=row: one.job == row["job"]).values()
            assert (own["wall_ns"], own["productive_wall_ns"]) == (row["wall_ns"], row["productive_wall_ns"])


@pytest.mark.parametrize(
    "filters",
    [{}, {"team": "ads"}, {"phase": "compile_cold"}, pytest.param({"component": "compiler"}, marks=no_citus)],
)
def test_work_with_keys_is_what_began_in_the_window(service: Service, filters: dict[str, str]) -> None:
    query = (
        "SELECT work_key, job, team, w.start_ns, wall_ns, seen_in_job FROM work w JOIN jobs USING (job_id)"
        " ORDER BY w.start_ns"
    )
    with service.engine.connect() as conn:
        rows = list(conn.exec_driver_sql(query))
    assert {"graph-m1", "graph-m2", "graph-m3", "graph-None"} == {row.work_key for row in rows}
    first = {row.work_key: row for row in reversed(rows)}
    for low, high in windows():
        within = [
            row for row in rows if low <= row.start_ns < high and filters.get("team", row.team) == row.team
        ]
        again = [row for row in within if row != first[row.work_key]]
        found = service.get("/v1/fleet/repeated-work", from_=low, to=high, **filters)
        assert sum(row.wall_ns for row in within) == found["keyed_ns"], (low, high)
        assert sum(row.wall_ns for row in within if row.seen_in_job) == found["cacheable_in_job_ns"]
        assert sum(row.wall_ns for row in again) == found["cacheable_ns"]
        keys = {row.work_key for row in again}
        assert {
            key: (
                sum(row.work_key == key for row in within),
                len({row.job for row in within if row.work_key == key}),
            )
            for key in keys
        } == {row["work_key"]: (row["times"], row["jobs"]) for row in found["items"]}
