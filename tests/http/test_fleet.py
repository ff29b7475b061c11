"""The fleet's figures: sums first, then ratios; exact in any window."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from fleet_ett.core.taxonomy import HEADINGS
from tests.http.story import HOUR, T0, Job, S, rollback

if TYPE_CHECKING:
    from tests.http.service import Service

DAY_START = T0 - 12 * HOUR
MONDAY = DAY_START  # 2026-03-02 was one


@pytest.fixture(scope="module", autouse=True)
def books(service: Service) -> None:
    """Two jobs of one shape in two clusters, and a small one."""
    small = Job("small", 1, "n3", {"cluster": "c2", "team": "feed", "model": "m2"})
    service.book(
        rollback("big", gpus=1000, node="n1", cluster="c1", team="ads", model="m1"),
        rollback("mid", gpus=8, node="n2", cluster="c2", team="ads", model="m1"),
        small.begin(7200).steps(1, 10, 7200, 7300).end(7300),
    )


def test_the_total_in_three_weights(service: Service) -> None:
    """GPU-weighted is the fleet's measure; wall- and job-weighted stand beside it."""
    total = service.get("/v1/fleet/ett")
    wall = [7200 * S, 7200 * S, 100 * S]
    productive = [6000 * S, 6000 * S, 100 * S]
    gpu = 7100 * S * 1008 + 100 * S
    assert sum(wall) == total["wall_ns"]
    assert gpu == total["gpu_ns"]
    assert 6000 * S * 1008 + 100 * S == total["productive_gpu_ns"]
    assert (6000 * S * 1008 + 100 * S) / gpu == total["ett"] == total["ett_gpu_weighted"]
    assert sum(productive) / sum(wall) == total["ett_wall_weighted"]
    assert pytest.approx((6000 / 7200 * 2 + 1) / 3) == total["ett_job_weighted"]
    assert 3 == total["jobs"]
    assert total["ett"] == total["ett_settled"]
    assert 0 == total["provisional_gpu_ns"]


def test_parts_add_up(service: Service) -> None:
    """Every heading of the contract is there, also with 0; they add up to what was held."""
    total = service.get("/v1/fleet/ett", by="cluster")
    for row in (total, *total["items"]):
        assert list(HEADINGS) == list(row["headings"])
        assert row["wall_ns"] == sum(row["headings"].values())
        assert row["gpu_ns"] == sum(row["gpu_headings"].values())
        assert row["productive_gpu_ns"] == row["gpu_headings"]["productive"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("cluster", [("c1",), ("c2",)]),
        ("team", [("ads",), ("feed",)]),
        ("model", [("m1",), ("m2",)]),
        ("job", [("big",), ("mid",), ("small",)]),
        ("hour", [(T0,), (T0 + HOUR,), (T0 + 2 * HOUR,)]),
        ("day", [(DAY_START,)]),
        ("week", [(MONDAY,)]),
        ("team,cluster", [("ads", "c1"), ("ads", "c2"), ("feed", "c2")]),
        ("framework", [("",)]),
    ],
)
def test_groups_add_up_to_the_total(service: Service, by: str, expected: list[tuple[Any, ...]]) -> None:
    """Groups come in order, each with its own figures, and nothing falls between them."""
    answer = service.get("/v1/fleet/ett", by=by)
    names = by.split(",")
    assert expected == [tuple(row[name] for name in names) for row in answer["items"]]
    for column in ("wall_ns", "gpu_ns", "productive_wall_ns", "productive_gpu_ns", "settled_gpu_ns"):
        assert answer[column] == sum(row[column] for row in answer["items"])
    assert names == answer["by"]


def test_neighbouring_windows_add_up_to_the_nanosecond(service: Service) -> None:
    """[a, c) = [a, b) + [b, c) for any moments, hours cut or not."""
    chance = random.Random(7)
    for _ in range(40):
        a, b, c = sorted(chance.randrange(T0 - HOUR, T0 + 4 * HOUR) for _ in range(3))
        one, other, both = (
            service.get("/v1/fleet/ett", from_=low, to=high) for low, high in ((a, b), (b, c), (a, c))
        )
        for column in ("wall_ns", "gpu_ns", "productive_gpu_ns", "settled_wall_ns"):
            assert both[column] == one[column] + other[column], (a, b, c)
        for heading, amount in both["gpu_headings"].items():
            assert amount == one["gpu_headings"][heading] + other["gpu_headings"][heading]


@pytest.mark.parametrize(
    ("start", "end", "productive", "wall"),
    [
        (50, 150, 50, 100),  # within one hour, half compiling
        (4250, 4350, 0, 100),  # half gap, half compiling
        (3599.999999999, 3600.000000001, 2e-9, 2e-9),  # over the full hour
        (0, 3600, 3500, 3600),  # a whole hour
        (7200, 7200, 0, 0),
    ],
)
def test_a_window_is_exact(
    service: Service, start: float, end: float, productive: float, wall: float
) -> None:
    """What is booked of the window, by hand."""
    low, high = (T0 + int(at) * S + round((at % 1) * S) for at in (start, end))
    found = service.get("/v1/fleet/ett", from_=low, to=high, job="big")
    assert round(wall * S) == found["wall_ns"]
    assert round(productive * S) == found["productive_wall_ns"]


def test_a_window_in_which_nothing_was_held_has_no_ratio(service: Service) -> None:
    """B71: null, not 0, not 1, not NaN."""
    empty = service.get("/v1/fleet/ett", from_=T0 - 2 * HOUR, to=T0 - HOUR)
    assert 0 == empty["gpu_ns"]
    for name in ("ett", "ett_gpu_weighted", "ett_wall_weighted", "ett_job_weighted", "ett_settled"):
        assert empty[name] is None
    gap = service.get(
        "/v1/fleet/ett", from_=T0 + 4210 * S, to=T0 + 4290 * S
    )  # released hardware: wall, no GPUs
    assert 160 * S == gap["wall_ns"]
    assert (None, 0) == (gap["ett"], gap["ett_wall_weighted"])


@pytest.mark.parametrize(
    ("filters", "jobs"),
    [
        ({"cluster": "c1"}, 1),
        ({"cluster": ["c1", "c2"]}, 3),
        ({"team": "ads", "model": "m1", "cluster": "c2"}, 1),
        ({"job": "small"}, 1),
        ({"job": "nobody"}, 0),
        ({"cause": "gpu_off_bus"}, 2),
        ({"component": "compiler"}, 2),
        ({"phase": "publish_on_accelerator"}, 2),
        ({"component": "network"}, 0),
        ({"cluster": "c1' OR 1=1 --"}, 0),
    ],
)
def test_filters_choose_jobs(service: Service, filters: dict[str, Any], jobs: int) -> None:
    """Several values of one filter: either; several filters: all of them."""
    assert jobs == service.get("/v1/fleet/ett", **filters)["jobs"]


def test_lost_time_by_component(service: Service) -> None:
    """Direct: whose phase it was. Induced: who ended the attempt. Shares and ETT add up to 1."""
    answer = service.get("/v1/fleet/lost-time", cluster="c1")
    rows = {row["component"]: row for row in answer["items"]}
    assert ["checkpoint", "compiler", "hw_fleet", "publish", "scheduler", "unowned"] == list(rows)
    assert 500 * S == rows["checkpoint"]["direct_ns"]  # replay and a blocking save
    assert 200 * S * 1000 == rows["compiler"]["direct_gpu_ns"]
    assert (0, 700 * S, 1) == tuple(rows["hw_fleet"][n] for n in ("direct_ns", "induced_ns", "incidents"))
    assert 600 * S * 1000 == rows["hw_fleet"]["induced_gpu_ns"]  # the gap costs no GPU time
    ett = service.get("/v1/fleet/ett", cluster="c1")["ett"]
    assert 1 == pytest.approx(ett + sum(row["direct_share"] for row in rows.values()))
    assert answer["lost_gpu_ns"] == sum(row["direct_gpu_ns"] for row in rows.values())


def test_lost_time_by_cause_is_induced_and_by_phase_direct(service: Service) -> None:
    """Bookings have no cause and incidents no phase: null, and never combined."""
    (cause,) = service.get("/v1/fleet/lost-time", by="cause,kind")["items"]
    assert ("gpu_off_bus", "infra", None, 1400 * S) == tuple(
        cause[n] for n in ("cause", "kind", "direct_ns", "induced_ns")
    )
    phases = {row["phase"]: row for row in service.get("/v1/fleet/lost-time", by="phase")["items"]}
    assert 800 * S == phases["step_replayed"]["direct_ns"]
    assert phases["step_replayed"]["induced_ns"] is None
    assert "step_new_data" not in phases
    assert 400 == service.ask("/v1/fleet/lost-time", by="cause,phase").status_code
    assert 400 == service.ask("/v1/fleet/lost-time", by="phase", cause="gpu_off_bus").status_code


@pytest.mark.parametrize(
    "by", ["owner", "heading", "repeated", "cluster", "job", "day", "component,hour", "owner,team"]
)
def test_lost_time_is_the_same_in_any_groups(service: Service, by: str) -> None:
    """However it is cut, all of it is there."""
    answer = service.get("/v1/fleet/lost-time", by=by)
    assert answer["lost_gpu_ns"] == sum(row["direct_gpu_ns"] for row in answer["items"])
    assert 2 * 1200 * S == sum(row["direct_ns"] for row in answer["items"])
    if not {"heading", "repeated"} & set(by.split(",")):
        assert 2 * 700 * S == sum(row["induced_ns"] for row in answer["items"])


def test_owners_are_mapped_without_computing_anything_again(service: Service) -> None:
    """A row in `owners` moves the loss of a component at once; without one a component owns itself."""
    before = {row["owner"]: row for row in service.get("/v1/fleet/lost-time", by="owner")["items"]}
    with service.engine.begin() as conn:
        conn.execute(text("INSERT INTO owners VALUES ('compiler', 'pt2 team'), ('publish', 'pt2 team')"))
    try:
        after = {row["owner"]: row for row in service.get("/v1/fleet/lost-time", by="owner")["items"]}
        page = service.get("/v1/components/compiler")
    finally:
        with service.engine.begin() as conn:
            conn.execute(text("DELETE FROM owners"))
    both = before["compiler"]["direct_ns"] + before["publish"]["direct_ns"]
    assert both == after["pt2 team"]["direct_ns"]
    assert "compiler" not in after
    assert "pt2 team" == page["owner"]


def test_repeated_work(service: Service) -> None:
    """Replay, repeated startup, and what a cache shared by the fleet would have saved."""
    answer = service.get("/v1/fleet/repeated-work")
    assert (800 * S, 200) == (answer["replay_ns"], answer["replayed_steps"])
    assert 200 * S == answer["repeated_startup_ns"]
    assert 400 * S == answer["keyed_ns"]
    assert 200 * S == answer["cacheable_in_job_ns"]
    assert 300 * S == answer["cacheable_ns"]  # all but the very first time
    assert [("compile_cold", "compiler", 200 * S)] == [
        (row["phase"], row["component"], row["repeated_ns"]) for row in answer["phases"]
    ]
    (key,) = answer["items"]
    assert ("graph-1", 4, 2, 300 * S) == tuple(key[n] for n in ("work_key", "times", "jobs", "cacheable_ns"))
    one = service.get("/v1/fleet/repeated-work", cluster="c1")
    assert 0.5 == one["cacheable_share"]
    none = service.get("/v1/fleet/repeated-work", cluster="nowhere")
    assert (None, 0, []) == (none["cacheable_share"], none["replay_ns"], none["items"])
