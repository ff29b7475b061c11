"""Incidents, components, nodes: who made whom pay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.core.taxonomy import DEFAULT
from tests.http.story import HOUR, T0, Job, S, rollback

if TYPE_CHECKING:
    from tests.http.service import Service


@pytest.fixture(scope="module", autouse=True)
def books(service: Service) -> None:
    """Three jobs that fail: an XID on n1, a preemption, a user's exception."""
    preempted = Job("preempted", 8, "n2", {"cluster": "c1", "team": "ads"})
    preempted.begin(0).steps(1, 100, 0, 1000).end(1000, "preempted").begin(1600).steps(
        101, 200, 1600, 2600
    ).end(2600)
    user = Job("user", 8, "n3", {"cluster": "c2", "team": "feed"})
    user.begin(0).steps(1, 100, 0, 1000)
    user.end(1000, "failed", exit_code=1, error="Traceback (most recent call last):\nValueError: shape")
    service.book(rollback("xid", node="n1", cluster="c1", team="ads"), preempted, user)


def test_incidents_are_told_newest_first(service: Service) -> None:
    """Planned ends are among them, marked."""
    rows = service.get("/v1/incidents")["items"]
    assert ["xid", "user", "preempted"] == [row["job"] for row in rows] or ["xid", "preempted", "user"] == [
        row["job"] for row in rows
    ]
    told = {row["job"]: (row["cause"], row["kind"], row["component"]) for row in rows}
    assert ("gpu_off_bus", "infra", "hw_fleet") == told["xid"]
    assert ("preemption", "planned", "scheduler") == told["preempted"]
    assert ("user_code_exception", "user", "model_owner") == told["user"]
    for row in rows:
        assert row["wall_ns"] == row["stall_ns"] + row["gap_ns"] + row["restart_ns"] + row["replay_ns"]


@pytest.mark.parametrize(
    ("params", "jobs"),
    [
        ({"kind": "infra"}, ["xid"]),
        ({"kind": ["user", "planned"]}, ["user", "preempted"]),
        ({"cause": "preemption"}, ["preempted"]),
        ({"component": "hw_fleet"}, ["xid"]),
        ({"cluster": "c2"}, ["user"]),
        ({"team": "ads", "kind": "planned"}, ["preempted"]),
        ({"phase": "publish_on_accelerator"}, ["xid"]),
        ({"from_": T0 + 2000 * S}, ["xid"]),
        ({"to": T0 + 1000 * S}, []),
        ({"from_": T0 + 1000 * S, "to": T0 + 1000 * S + 1, "cluster": "c1"}, ["preempted"]),
    ],
)
def test_incidents_by_filter(service: Service, params: dict[str, Any], jobs: list[str]) -> None:
    """A window holds an incident by the moment of its end."""
    assert sorted(jobs) == sorted(row["job"] for row in service.get("/v1/incidents", **params)["items"])


def test_incidents_page_by_page(service: Service) -> None:
    """Two that ended at one moment are told one after the other."""
    assert service.get("/v1/incidents")["items"] == service.pages("/v1/incidents", limit=1)


def test_an_unknown_kind_is_refused(service: Service) -> None:
    """With the kinds that there are."""
    answer = service.ask("/v1/incidents", kind="planed")
    assert 400 == answer.status_code
    assert "infra, user, planned, unknown" in answer.json()["detail"]


def test_every_component_has_a_row(service: Service) -> None:
    """Also those that lost nothing; in the order of their names, page by page."""
    rows = service.get("/v1/components")["items"]
    assert sorted(DEFAULT.components) == [row["component"] for row in rows]
    assert rows == service.pages("/v1/components", limit=5)
    assert ["compiler"] == [
        row["component"] for row in service.get("/v1/components", component="compiler")["items"]
    ]


def test_components_agree_with_lost_time(service: Service) -> None:
    """The same figures, and ETT and all shares are one."""
    rows = {row["component"]: row for row in service.get("/v1/components")["items"]}
    for lost in service.get("/v1/fleet/lost-time")["items"]:
        assert lost == {name: rows[lost["component"]][name] for name in lost}
    ett = service.get("/v1/fleet/ett")["ett"]
    assert 1 == pytest.approx(ett + sum(row["direct_share"] for row in rows.values()))


def test_an_owners_page(service: Service) -> None:
    """By phase, by cause, over time, and where it lost most."""
    page = service.get("/v1/components/hw_fleet", trend="hour")
    assert ("hw_fleet", 0, 700 * S, 1) == tuple(
        page[n] for n in ("owner", "direct_ns", "induced_ns", "incidents")
    )
    assert [("gpu_off_bus", 700 * S)] == [(row["cause"], row["induced_ns"]) for row in page["causes"]]
    assert [("xid", 700 * S)] == [(row["job"], row["induced_ns"]) for row in page["worst_jobs"]]
    assert [(T0, 0), (T0 + HOUR, 700 * S)] == [(row["start"], row["induced_ns"]) for row in page["trend"]]
    compiler = service.get("/v1/components/compiler")
    assert [("compile_cold", 200 * S)] == [(row["phase"], row["direct_ns"]) for row in compiler["phases"]]
    assert [] == compiler["causes"]
    assert 404 == service.ask("/v1/components/quantum").status_code


def test_a_trend_shows_periods_in_which_nothing_was_lost(service: Service) -> None:
    """0 of what was held is a figure; a share is of its own period."""
    trend = service.get("/v1/components/publish", trend="hour")["trend"]
    assert [(T0, 0, 0.0), (T0 + HOUR, 300 * S, 2400 / (3500 * 8))] == [
        (row["start"], row["direct_ns"], row["direct_share"]) for row in trend
    ]


def test_nodes_with_their_failures(service: Service) -> None:
    """What failed on a node, planned ends left out; nodes that cost nothing are listed too."""
    rows = {row["node"]: row for row in service.get("/v1/nodes")["items"]}
    assert {"n1", "n2", "n3"} == set(rows)
    assert (1, 1, 4_800_000_000_000, 1) == tuple(
        rows["n1"][n] for n in ("failures", "infra_failures", "induced_gpu_ns", "faults")
    )
    assert (0, 0, 0) == tuple(rows["n2"][n] for n in ("failures", "held_ns", "faults"))
    assert (0, "1.0") == (rows["n1"]["clock_offset_ns"], rows["n1"]["agent_version"])
    assert list(rows.values()) == service.pages("/v1/nodes", limit=1)


def test_a_node_that_holds_others_up_comes_first(service: Service) -> None:
    """255 ranks that wait for one rank's image book it, and its node has a name."""
    job = Job("waiters", 16, "n10", {"cluster": "held"}).begin(0)
    job.tell("phase", rank=0, phase="image_pull", start=0, end=10).tell(
        "phase", rank=0, phase="rendezvous", start=10, end=100
    )
    slow = Job("waiters", 16, "n11", {"cluster": "held"})
    slow.attempts = 1
    slow.tell("phase", rank=1, phase="image_pull", start=0, end=100)
    job.steps(1, 10, 100, 200).end(200)
    slow.tell("steps", rank=1, first=1, last=10, start=100, end=200)
    slow_events = [event._replace(incarnation="of n11") for event in slow.events() if event.type != "job"]
    service.book_events([*job.events(), *slow_events])
    first = service.get("/v1/nodes", cluster="held")["items"][0]
    assert ("n11", 90 * S, 90 * S * 16, 1) == tuple(
        first[n] for n in ("node", "held_ns", "held_gpu_ns", "jobs")
    )
    assert "n11" == service.get("/v1/nodes")["items"][0]["node"]
    assert [] == service.get("/v1/nodes", cluster="held", from_=T0 + HOUR)["items"]
