"""A token of one cluster against another's jobs and nodes, in every field that names one."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from fleet_ett.__main__ import main
from tests.security.bearers import DENIED, Tokens, id_of, problem, send, told

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.http.service import Service

SPAN = {"type": "phase", "attempt": "x", "rank": 0, "phase": "evaluation"}


def refused(answer: Any) -> list[int]:
    assert 200 == answer.status_code, answer.text
    return [one["index"] for one in answer.json()["quarantined"]]


@pytest.fixture
def ours(tokens: Tokens) -> dict[str, str]:
    """A token of the cluster `ours`."""
    return tokens.create("--scope", "ingest", "--cluster", "ours")


@pytest.fixture
def theirs(service: Service, tokens: Tokens) -> dict[str, str]:
    """A token of the cluster `theirs`, whose node and job are known."""
    header = tokens.create("--scope", "ingest", "--cluster", "theirs")
    assert [] == refused(send(service, header, "their-node", *told("their-job")))
    return header


@pytest.mark.usefixtures("theirs")
def test_no_field_names_anothers_node_or_job(service: Service, ours: dict[str, str], engine: Engine) -> None:
    at = time.time_ns()
    start = {"type": "attempt_start", "job": "our-job", "attempt": "x", "ts": at, "gpus": 8}
    end = {"type": "attempt_end", "job": "our-job", "attempt": "x", "ts": at, "outcome": "failed"}
    fault = {"type": "fault", "ts": at, "kind": "xid", "code": 79}
    save = {"type": "checkpoint", "attempt": "x", "step": 1, "ts": at, "kind": "save"}
    steps = {"type": "steps", "attempt": "x", "rank": 0, "first": 1, "last": 2, "start": at, "end": at + 1}
    rows: list[dict[str, Any]] = [
        {**start, "nodes": ["our-node", "their-node"]},
        {**start, "gpus_by_node": {"our-node": 4, "their-node": 4}},
        {**end, "failed_node": "their-node"},
        {**fault, "job": "their-job", "attempt": "x"},
        {**fault, "job": "their-job"},
        {**fault, "node": "their-node"},
        {"type": "heartbeat", "ts": at, "jobs": [{"job": job, "attempt": "x"} for job in ("our-job", "their-job")]},
        {**save, "job": "their-job"},
        {**steps, "job": "their-job"},
        {**SPAN, "job": "their-job", "start": at, "end": at + 1},
        {**SPAN, "type": "phase_open", "job": "their-job", "start": at, "span": "s"},
        {"type": "job", "job": "their-job", "team": "ours"},
        {"type": "job", "job": "our-job", "cluster": "theirs"},
        {**end, "job": "their-job"},
        {**start, "job": "their-job"},
    ]  # fmt: skip
    numbered = [{**row, "seq": seq} for seq, row in enumerate(rows)]
    assert list(range(len(rows))) == refused(send(service, ours, "our-node", *numbered))
    bad, good = {"seq": 0, **end, "failed_node": "their-node"}, {"seq": 1, **start}
    assert [0] == refused(send(service, ours, "our-node", bad, good))
    with engine.connect() as conn:
        nodes = conn.exec_driver_sql(
            "SELECT DISTINCT node FROM attempt_nodes JOIN jobs USING (job_id) WHERE job = 'our-job'"
        )
        assert ["our-node"] == list(nodes.scalars())


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize("jobs", ["their-job", ["our-job", "their-job", "our-job"]])
def test_bulk_and_msgpack_are_no_way_around(service: Service, ours: dict[str, str], jobs: Any) -> None:
    """Neither as a constant nor as a column of a batch, in JSON and in msgpack."""
    at = time.time_ns()
    columns: dict[str, Any] = {"seq": [0, 1, 2], "start": [at] * 3, "end": [at + 1] * 3}
    bulk = {**SPAN, "columns": columns}
    if isinstance(jobs, list):
        columns["job"] = jobs
    else:
        bulk["job"] = jobs
    expected = [0, 1, 2] if jobs == "their-job" else [1]
    for encode, media in ((json.dumps, "json"), (msgspec.msgpack.encode, "msgpack")):
        agent = {"node": "our-node", "incarnation": f"{media} {at}"}
        body: Any = encode({"agent": agent, "batches": [bulk]})
        headers = {**ours, "Content-Type": f"application/{media}"}
        assert expected == refused(service.client.post("/v1/events", content=body, headers=headers))


def test_an_unchecked_field_adds_no_node(service: Service, ours: dict[str, str], engine: Engine) -> None:
    """A field that its type does not know is kept aside, whatever it is called and holds."""
    at = time.time_ns()
    span = {**SPAN, "job": "odd", "start": at, "end": at + 1}
    odd: list[Any] = [5, ["their-node"], {"their-node": 1}, "their-node"]
    rows = [{"seq": seq, **span, "nodes": value, "gpus_by_node": value} for seq, value in enumerate(odd)]
    assert [] == refused(send(service, ours, "our-node", *rows))
    with engine.connect() as conn:
        nodes = conn.exec_driver_sql(
            "SELECT node FROM attempt_nodes JOIN jobs USING (job_id) WHERE job = 'odd'"
        )
        assert ["our-node"] == list(nodes.scalars())


@pytest.mark.usefixtures("theirs")
def test_a_key_that_begins_with_a_clusters_name_is_its_own(service: Service, ours: dict[str, str]) -> None:
    """Nobody can take such a name before its cluster does; other slashes mean nothing."""
    assert [0, 1] == refused(send(service, ours, "our-node", *told("theirs/8812/1772452800")))
    assert [] == refused(send(service, ours, "our-node", *told("ours/8812/1772452800")))
    assert [] == refused(send(service, ours, "our-node", *told("nobodys/8812/1772452800")))


def test_to_name_a_node_claims_nothing(service: Service, tokens: Tokens, ours: dict[str, str]) -> None:
    """Who lists strange nodes cannot keep their own cluster's agents out."""
    at = time.time_ns()
    start = {
        "seq": 0,
        "type": "attempt_start",
        "job": "our-list",
        "attempt": "x",
        "ts": at,
        "nodes": ["late-node"],
    }
    assert [] == refused(send(service, ours, "our-node", start))
    other = tokens.create("--scope", "ingest", "--cluster", "late")
    assert [] == refused(send(service, other, "late-node", *told("late-job")))


def test_what_is_refused_claims_nothing(service: Service, tokens: Tokens, ours: dict[str, str]) -> None:
    """Neither an event that is no event, nor a batch whose sender may not speak, takes a name."""
    assert [0] == refused(
        send(service, ours, "our-node", {"seq": 0, "type": "job", "job": "wanted", "name": 5})
    )
    pinned = tokens.create("--scope", "ingest", "--cluster", "ours", "--node", "our-node")
    assert DENIED == problem(send(service, pinned, "wanted-node", *told("wanted")))
    other = tokens.create("--scope", "ingest", "--cluster", "late")
    assert [] == refused(send(service, other, "wanted-node", *told("wanted")))


def test_claims_are_listed_moved_and_released(service: Service, tokens: Tokens, ours: dict[str, str]) -> None:
    assert [] == refused(send(service, ours, "squatted-node", *told("squatted")))
    listed = [json.loads(line) for line in tokens.run("claims", "--json", "--cluster", "ours").splitlines()]
    claims = {(one["kind"], one["name"]): one for one in listed}
    assert f"token {id_of(ours)}" == claims["job", "squatted"]["who"]
    assert "ours" == claims["node", "squatted-node"]["cluster"]
    tokens.run("claim", "--cluster", "late", "--node", "squatted-node", "--node", "new-node")
    tokens.run("release", "--job", "squatted")
    service.app.state.claims._kept.clear()  # as half a minute later
    assert DENIED == problem(send(service, ours, "squatted-node", *told("squatted")))
    assert DENIED == problem(send(service, ours, "new-node", *told("squatted")))
    late = tokens.create("--scope", "ingest", "--cluster", "late")
    assert [] == refused(send(service, late, "squatted-node", *told("squatted")))
    told_of = [line.split("\t")[2] for line in tokens.run("audit").splitlines()]
    assert {"claim made", "claim released"} <= set(told_of)
    for args in (
        ("release", "--job", "nobody's"),
        ("release",),
        ("claim", "--node", "n"),
        ("claim", "--cluster", "c"),
    ):
        assert main(["token", *args, "--database-url", tokens.url])


def test_a_token_of_a_node_settles_whose_it_is(service: Service, tokens: Tokens) -> None:
    """Its node is its cluster's before it is ever heard; another cluster's node is not given away by mistake."""
    tokens.create("--scope", "ingest", "--cluster", "first", "--node", "settled")
    other = tokens.create("--scope", "ingest", "--cluster", "second")
    assert DENIED == problem(send(service, other, "settled", *told("j")))
    args = ("create", "--name", "n", "--scope", "ingest", "--cluster", "second", "--node", "settled")
    assert 1 == main(["token", *args, "--database-url", tokens.url])
    assert "of the cluster 'first'" in tokens.capsys.readouterr().err


def test_a_flood_of_refusals_is_noted_in_part(service: Service, tokens: Tokens) -> None:
    """Each sender has a bounded share of the audit log."""
    header = tokens.create("--scope", "ingest", "--cluster", "loud", "--node", "loud-node")
    for number in range(40):
        assert DENIED == problem(send(service, header, f"other-{number}", *told("j")))
    assert 20 == sum(f"token {id_of(header)}\t" in line for line in tokens.run("audit").splitlines())
