"""Nodes that hold others up: in which phase, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.http.story import HOUR, T0, Job, S

if TYPE_CHECKING:
    from tests.http.service import Service

WAITED = {"puller": 90, "loader": 60, "stepper": 0}  # s for which others waited for the node


@pytest.fixture(scope="module", autouse=True)
def books(service: Service) -> None:
    """A job on three nodes: one is slow to pull the image, one to load the checkpoint; the second has an XID."""
    told = {node: Job("waits", 24, node, {"cluster": "c1", "team": "ads"}) for node in WAITED}
    told["stepper"].begin(0)
    for rank, (node, one) in enumerate(told.items()):
        one.attempts = 1
        pulled = 100 if node == "puller" else 10
        loaded = 180 if node == "loader" else 120
        one.tell("phase", rank=rank, phase="image_pull", start=0, end=pulled)
        if pulled < 100:
            one.tell("phase", rank=rank, phase="rendezvous", start=pulled, end=100)
        one.tell("phase", rank=rank, phase="checkpoint_load", start=100, end=loaded)
        if loaded < 180:
            one.tell("phase", rank=rank, phase="compile_cold", start=loaded, end=180)
        one.tell("steps", rank=rank, first=1, last=10, start=180, end=280)
    told["loader"].tell("fault", ts=150, kind="xid", code=13)
    told["stepper"].end(280)
    events = [event for node in told.values() for event in node.events() if event.type != "job"]
    (job,) = [event for event in told["stepper"].events() if event.type == "job"]
    service.book_events([job, *(event._replace(incarnation=f"of {event.node}") for event in events)])


def held(rows: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    return [(row["node"], row["held_ns"], row["held_gpu_ns"], row["jobs"]) for row in rows]


def waited(*nodes: str) -> list[tuple[str, int, int, int]]:
    return [(node, WAITED[node] * S, WAITED[node] * S * 24, int(WAITED[node] > 0)) for node in nodes]


@pytest.mark.parametrize(
    ("params", "nodes"),
    [
        ({}, ("puller", "loader", "stepper")),
        ({"component": "container_image"}, ("puller",)),
        ({"component": "checkpoint"}, ("loader",)),
        ({"component": ["checkpoint", "container_image"]}, ("puller", "loader")),
        ({"component": "compiler"}, ()),
        ({"phase": "image_pull"}, ("puller",)),
        ({"phase": "checkpoint_load"}, ("loader",)),
        ({"phase": "checkpoint_load", "component": "container_image"}, ()),
        ({"component": "checkpoint", "team": "ads"}, ("loader",)),
        ({"component": "checkpoint", "team": "feed"}, ()),
        ({"component": "checkpoint", "cause": "gpu_off_bus"}, ()),
        ({"component": "checkpoint", "from_": T0 + HOUR}, ()),
    ],
)
def test_a_node_is_shown_for_what_it_held_up_itself(
    service: Service, params: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    """Although its job lost time to other components, too."""
    rows = service.get("/v1/nodes", **params)["items"]
    assert waited(*nodes) == held(rows)
    assert rows == service.pages("/v1/nodes", limit=1, **params)


@pytest.mark.parametrize(
    ("component", "nodes"),
    [("container_image", ("puller",)), ("checkpoint", ("loader",)), ("compiler", ())],
)
def test_a_component_s_page_shows_its_own_worst_nodes(
    service: Service, component: str, nodes: tuple[str, ...]
) -> None:
    """By what others waited for that the component owns; the job is among its worst jobs for any part of that."""
    page = service.get(f"/v1/components/{component}")
    assert waited(*nodes) == held(page["worst_nodes"])


@pytest.mark.parametrize(
    ("params", "faults"),
    [({"component": "checkpoint"}, 1), ({"phase": "checkpoint_load"}, 1), ({"job": "waits"}, 1)],
)
def test_faults_of_a_node_count_whatever_it_held_up(
    service: Service, params: dict[str, Any], faults: int
) -> None:
    rows = {row["node"]: row["faults"] for row in service.get("/v1/nodes", **params)["items"]}
    assert faults == rows["loader"]
