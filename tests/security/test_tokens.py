"""Access tokens over real HTTP: who is let in, for what, and who is told no."""

from __future__ import annotations

import gzip
import json
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from ett_collector.agent.config import AgentConfig
from ett_collector.agent.post import opener_for, post
from ett_collector.wire import to_wire
from fleet_ett.__main__ import main
from tests.http.story import rollback
from tests.security.bearers import DENIED, INVALID, Tokens, bearer, id_of, problem, send, told, until
from tests.security.processes import serving

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.http.service import Service


@pytest.mark.usefixtures("tokens")
def test_with_a_token_every_request_but_the_probes_needs_one(service: Service) -> None:
    for path in ("/", "/v1/jobs", "/v1/jobs/ads-1", "/metrics", "/docs", "/openapi.json", "/nowhere"):
        assert INVALID == problem(service.ask(path)), path
    assert INVALID == problem(send(service, {}, "n1", *told("j")))
    assert [200, 200] == [service.ask(path).status_code for path in ("/healthz", "/readyz")]


def test_a_forged_token_is_refused(service: Service, tokens: Tokens) -> None:
    good = tokens.create("--scope", "read", "--all")["Authorization"].removeprefix("Bearer ")
    assert 200 == service.ask("/v1/jobs", bearer(good)).status_code
    other = tokens.create("--scope", "admin")["Authorization"]
    forged = [
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good[:-1],
        good + "A",
        good.upper(),
        "_".join(["ett", good.split("_")[1], other.split("_", 2)[2]]),  # another's secret
        "ett_" + "0" * 16 + "_" + "A" * 43,
        "ett_' OR 1=1 --_" + "A" * 43,
        "ett_",
    ]
    for token in forged:
        assert INVALID == problem(service.ask("/v1/jobs", bearer(token))), token
    assert INVALID == problem(service.ask("/v1/jobs", {"Authorization": f"Basic {good}"}))
    twice = [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {good}")]
    assert INVALID == problem(service.client.get("/v1/jobs", headers=twice))
    assert INVALID == problem(service.ask("/v1/jobs", access_token=good))


def test_openapi_says_where_a_token_is_needed(service: Service, tokens: Tokens) -> None:
    document = service.ask("/openapi.json", tokens.create("--scope", "admin")).json()
    assert "bearer" == document["components"]["securitySchemes"]["token"]["scheme"]
    needs = {path: one["security"] for path, ways in document["paths"].items() for one in ways.values()}
    assert {"/healthz", "/readyz"} == {path for path, security in needs.items() if not security}
    assert [{}, {"token": []}] == needs["/v1/events"]


def test_an_expired_token_is_refused(service: Service, tokens: Tokens, engine: Engine) -> None:
    header = tokens.create("--scope", "read", "--all", "--days", "1")
    assert 200 == service.ask("/v1/jobs", header).status_code
    with engine.begin() as conn:
        conn.exec_driver_sql("UPDATE tokens SET expires_ns = 1 WHERE token_id = %s", (id_of(header),))
    assert INVALID == problem(until(401, service, "/v1/jobs", header))
    assert "expired" in next(line for line in tokens.run("list").splitlines() if id_of(header) in line)


def test_a_revoked_token_is_refused_and_stays_so(service: Service, tokens: Tokens) -> None:
    header = tokens.create("--scope", "read", "--all")
    assert 200 == service.ask("/v1/jobs", header).status_code
    tokens.run("revoke", id_of(header))
    assert INVALID == problem(until(401, service, "/v1/jobs", header))
    assert 1 == main(["token", "rotate", id_of(header), "--database-url", tokens.url])


def test_a_rotated_token_has_another_secret(service: Service, tokens: Tokens) -> None:
    old = tokens.create("--scope", "read", "--all")
    new = bearer(tokens.run("rotate", id_of(old)))
    assert id_of(old) == id_of(new)
    assert [200, 401] == [service.ask("/v1/jobs", header).status_code for header in (new, old)]


def test_after_a_rotation_with_grace_both_secrets_are_good(service: Service, tokens: Tokens) -> None:
    old = tokens.create("--scope", "read", "--all")
    new = bearer(tokens.run("rotate", id_of(old), "--grace", "3600"))
    assert [200, 200] == [service.ask("/v1/jobs", header).status_code for header in (new, old)]


def test_each_scope_does_its_own(service: Service, tokens: Tokens) -> None:
    ingest = tokens.create("--scope", "ingest", "--all")
    read = tokens.create("--scope", "read", "--all")
    admin = tokens.create("--scope", "admin")
    for path in ("/v1/jobs", "/metrics", "/v1/quarantine"):
        assert DENIED == problem(service.ask(path, ingest)), path
        assert [200, 200] == [service.ask(path, header).status_code for header in (read, admin)]
    assert 2 == send(service, ingest, "n9", *told("of-all")).json()["accepted"]
    assert [DENIED] * 2 == [problem(send(service, header, "n9", *told("j"))) for header in (read, admin)]


def test_an_ingest_token_of_nodes_speaks_for_them_alone(service: Service, tokens: Tokens) -> None:
    header = tokens.create("--scope", "ingest", "--cluster", "prod-c", "--node", "n11", "--node", "n12")
    for node in ("n11", "n12"):
        assert 2 == send(service, header, node, *told("of-nodes")).json()["accepted"]
    assert DENIED == problem(send(service, header, "n1", *told("of-nodes")))
    assert DENIED == problem(send(service, header, "n11\u200b", *told("of-nodes")))
    lines = [line for line in tokens.run("audit").splitlines() if f"token {id_of(header)}" in line]
    assert {'{"node": "n1"}', '{"node": "n11\\u200b"}'} == {line.split("\t")[3] for line in lines}


def test_a_cluster_token_writes_its_own_clusters_jobs_alone(service: Service, tokens: Tokens) -> None:
    """Events of another cluster's jobs are quarantined by index; their neighbours are stored."""
    header = tokens.create("--scope", "ingest", "--cluster", "prod-a")
    at = time.time_ns()
    strange = {"type": "attempt_start", "attempt": "x", "ts": at, "gpus": 8, "world_size": 1}
    answer = send(
        service,
        header,
        "n21",
        {"seq": 0, **strange, "job": "ads-1"},
        {"seq": 1, **strange, "job": "search-1"},
        {"seq": 2, "type": "job", "job": "new-1", "cluster": "prod-b"},
        {"seq": 3, "type": "job", "job": "ads-1", "cluster": "prod-b"},
        {"seq": 4, "type": "heartbeat", "ts": at, "jobs": [{"job": "search-1", "attempt": "a0"}]},
        {"seq": 5, **strange, "job": "new-2"},
    ).json()
    assert 2 == answer["accepted"]
    assert [1, 2, 3, 4] == [one["index"] for one in answer["quarantined"]]
    assert "another cluster's" in tokens.run("audit")


def test_a_cluster_token_is_held_to_its_jobs_in_bulk_too(service: Service, tokens: Tokens) -> None:
    """However many events of another cluster's job come at once, as columns or as rows that are alike."""
    mine = tokens.create("--scope", "ingest", "--cluster", "prod-a")
    until(200, service, "/healthz", mine)
    at = time.time_ns()
    columns = {"seq": list(range(100)), "start": [at] * 100, "end": [at + 1] * 100}
    bulk = {"type": "phase", "job": "search-1", "attempt": "a9", "rank": 0, "phase": "evaluation"}
    rows = [{**bulk, "seq": seq, "start": at, "end": at + 1} for seq in range(100, 200)]
    agent = {"node": "bulk-node", "incarnation": f"{time.time_ns()}"}
    body = {"agent": agent, "events": rows, "batches": [{**bulk, "columns": columns}]}
    answer = service.client.post("/v1/events", json=body, headers=mine)
    assert 200 == answer.status_code, answer.text
    assert 0 == answer.json()["accepted"]
    assert list(range(200)) == [one["index"] for one in answer.json()["quarantined"]]


def test_who_names_a_job_or_a_node_first_claims_it_for_its_cluster(service: Service, tokens: Tokens) -> None:
    first = tokens.create("--scope", "ingest", "--cluster", "c1")
    second = tokens.create("--scope", "ingest", "--cluster", "c2")
    assert 2 == send(service, first, "m1", *told("claimed")).json()["accepted"]
    assert [0, 1] == [
        one["index"] for one in send(service, second, "m2", *told("claimed")).json()["quarantined"]
    ]
    assert DENIED == problem(send(service, second, "m1", *told("another")))
    both = tokens.create("--scope", "ingest", "--cluster", "c1", "--cluster", "c2")
    assert 2 == send(service, both, "m1", *told("claimed")).json()["accepted"]


def test_a_team_token_reads_its_teams_alone(service: Service, tokens: Tokens) -> None:
    header = tokens.create("--scope", "read", "--team", "ads")
    everything = tokens.create("--scope", "admin")
    assert ["ads-1"] == [row["job"] for row in service.ask("/v1/jobs", header).json()["items"]]
    for part in ("", "/ledger", "/timeline", "/goodput"):
        assert 200 == service.ask(f"/v1/jobs/ads-1{part}", header).status_code
        hidden = service.ask(f"/v1/jobs/search-1{part}", header)
        missing = service.ask(f"/v1/jobs/search-0{part}", header)
        assert (404, 404) == (hidden.status_code, missing.status_code)
        assert missing.json()["detail"] == hidden.json()["detail"].replace("search-1", "search-0")
    for path in ("ett", "lost-time", "repeated-work"):
        mine = service.ask(f"/v1/fleet/{path}", header).json()
        assert service.ask(f"/v1/fleet/{path}", everything, team="ads").json() == mine
    assert ["ads"] == [row["team"] for row in service.ask("/v1/fleet/ett", header, by="team").json()["items"]]
    assert {"ads-1"} == {row["job"] for row in service.ask("/v1/incidents", header).json()["items"]}
    assert ["n1"] == [row["node"] for row in service.ask("/v1/nodes", header).json()["items"]]
    page = service.ask("/v1/components/compiler", header).json()
    assert {"ads-1"} == {row["job"] for row in page["worst_jobs"]}


def test_a_team_token_cannot_ask_for_others(service: Service, tokens: Tokens) -> None:
    """Whether the other team exists or not, the answer is the same; what is of no team is not shown."""
    header = tokens.create("--scope", "read", "--team", "ads")
    assert DENIED == problem(service.ask("/v1/jobs", header, team="search"))
    assert DENIED == problem(service.ask("/v1/jobs", header, team="nobody"))
    assert DENIED == problem(service.ask("/v1/fleet/ett", header, team=["ads", "search"]))
    assert [] == service.ask("/v1/jobs", header, job="search-1").json()["items"]
    for path in ("/metrics", "/v1/quarantine"):
        assert DENIED == problem(service.ask(path, header)), path


def test_a_token_has_a_rate(service: Service, tokens: Tokens) -> None:
    slow = tokens.create("--scope", "read", "--all", "--rate", "1")
    other = tokens.create("--scope", "read", "--all")
    answers = [service.ask("/v1/components", slow) for _ in range(50)]
    busy = [answer for answer in answers if answer.status_code == 429]
    assert busy
    assert "busy" == busy[0].json()["code"]
    assert "1" == busy[0].headers["retry-after"]
    assert 200 == service.ask("/v1/components", other).status_code


def test_names_are_text_and_nothing_else(service: Service, tokens: Tokens, engine: Engine) -> None:
    for name in (
        "'; DROP TABLE tokens; --",
        "=cmd|' /C calc'!A0",
        "<script>alert(1)</script>",
        "%s {0} \\x00",
    ):
        header = tokens.create("--scope", "read", "--team", name, name=name)
        assert [] == service.ask("/v1/jobs", header).json()["items"]
        assert (
            name
            == next(line for line in tokens.run("list").splitlines() if id_of(header) in line).rpartition(
                "\t"
            )[2]
        )
    for name in ("a\nb", "a\tb", "\x1b[2J", "\x00", "", "x" * 201):
        for args in (("--name", name, "--team", "t"), ("--name", "n", "--team", name)):
            assert 2 == main(["token", "create", "--scope", "read", *args, "--database-url", tokens.url])
    with engine.connect() as conn:
        stored = [row.name for row in conn.exec_driver_sql("SELECT name FROM tokens")]
    assert all(name.isprintable() and name for name in stored)


def test_a_grant_says_one_thing(tokens: Tokens) -> None:
    for args in (
        ("--scope", "ingest"),
        ("--scope", "read"),
        ("--scope", "ingest", "--all", "--node", "n"),
        ("--scope", "ingest", "--team", "t"),
        ("--scope", "ingest", "--node", "n"),
        ("--scope", "read", "--node", "n"),
        ("--scope", "admin", "--team", "t"),
        ("--scope", "read", "--all", "--rate", "-1"),
        ("--scope", "read", "--all", "--days", "0"),
    ):
        assert 2 == main(["token", "create", "--name", "n", *args, "--database-url", tokens.url]), args


def test_secrets_are_stored_nowhere(tokens: Tokens, engine: Engine) -> None:
    secret = tokens.create("--scope", "admin")["Authorization"].split("_", 2)[2]
    with engine.connect() as conn:
        for table in ("tokens", "audit"):
            rows = conn.exec_driver_sql(f"SELECT t::text FROM {table} t").scalars().all()
            assert not [row for row in rows if secret in row or secret.encode().hex() in row]


def test_secrets_are_in_no_log_and_no_error(tokens: Tokens, tmp_path: Path) -> None:
    """Not at the level debug either, whether they are good, rotated, revoked, forged or in the wrong place."""
    good = tokens.create("--scope", "read", "--all")
    old = tokens.create("--scope", "read", "--all")
    new = bearer(tokens.run("rotate", id_of(old)))
    revoked = tokens.create("--scope", "read", "--all")
    tokens.run("revoke", id_of(revoked))
    forged = bearer(f"ett_{id_of(good)}_{'B' * 43}")
    headers = (good, old, new, revoked, forged)
    settings = {"ETT_DATABASE_URL": tokens.url, "ETT_ATTRIBUTION_WORKERS": "0", "ETT_LOG_LEVEL": "debug"}
    answers = []
    with serving(settings, tmp_path / "log") as url, httpx.Client(base_url=url, timeout=60) as client:
        for header in headers:
            answers += [
                client.get(path, headers=header) for path in ("/v1/jobs", "/v1/jobs/nobody's", "/nowhere")
            ]
            answers.append(client.post("/v1/events", content=b"{", headers=header))
    log = (tmp_path / "log").read_text()
    assert "/v1/jobs" in log
    for header in headers:
        secret = header["Authorization"].split("_", 2)[2]
        assert secret not in log
        assert [] == [one for one in answers if secret in one.text + str(one.headers)]


def test_lists_are_told_to_programs_too(tokens: Tokens) -> None:
    """One JSON object a line; a secret only where it is made."""
    made = json.loads(
        tokens.run("create", "--name", "j", "--scope", "read", "--team", "a b", "--days", "2", "--json")
    )
    again = json.loads(tokens.run("rotate", made["id"], "--json"))
    assert {made["id"]} == {again["id"], again["token"].split("_")[1]}
    listed = [json.loads(line) for line in tokens.run("list", "--json").splitlines()]
    (mine,) = [one for one in listed if one["id"] == made["id"]]
    assert ("live", ["a b"], 50, "read") == (mine["state"], mine["teams"], mine["rate"], mine["scope"])
    noted = [json.loads(line) for line in tokens.run("audit", "--json").splitlines()]
    assert ["token rotated", "token created"] == [
        one["what"] for one in noted if one["detail"].get("token") == made["id"]
    ]
    assert "revoked" == json.loads(tokens.run("revoke", made["id"], "--json"))["state"]
    assert again["token"].split("_", 2)[2] not in tokens.run("list", "--json") + tokens.run("audit", "--json")


def test_what_is_done_to_tokens_is_noted(tokens: Tokens) -> None:
    header = tokens.create("--scope", "admin", name="the boss")
    tokens.run("rotate", id_of(header))
    tokens.run("revoke", id_of(header))
    lines = [line.split("\t") for line in tokens.run("audit").splitlines() if id_of(header) in line]
    assert ["token revoked", "token rotated", "token created"] == [line[2] for line in lines]
    assert all("@" in line[1] for line in lines)


@pytest.mark.usefixtures("tokens")
def test_an_event_without_a_token_costs_no_body(service: Service) -> None:
    """A stranger is told before the body is read."""
    answer = service.client.post("/v1/events", content=b"x" * 1_000_000)
    assert INVALID == problem(answer)


def test_a_token_of_all_goes_on_with_any_clusters_job(service: Service, tokens: Tokens) -> None:
    """It is not narrowed: what was sent before there were tokens is a repeat."""
    header = tokens.create("--scope", "ingest", "--all")
    again = rollback("search-1", node="n2", cluster="prod-b", team="search").events()
    agent = {"node": "n2", "incarnation": "of search-1"}
    body = {"agent": agent, "events": [to_wire(one) for one in again[1:3]]}
    assert 2 == service.client.post("/v1/events", json=body, headers=header).json()["duplicates"]


def test_a_token_of_nodes_and_a_cluster_is_bound_by_both(service: Service, tokens: Tokens) -> None:
    header = tokens.create("--scope", "ingest", "--node", "n31", "--cluster", "prod-a")
    assert DENIED == problem(send(service, header, "n32", *told("of-both")))
    answer = send(
        service, header, "n31", *told("of-both"), {"seq": 2, "type": "job", "job": "search-1"}
    ).json()
    assert (2, [2]) == (answer["accepted"], [one["index"] for one in answer["quarantined"]])


def test_the_agents_headers_carry_its_token(service: Service, tokens: Tokens) -> None:
    """What `ett-agent` sends with ETT_AGENT_TOKEN is taken, and without it refused."""
    token = tokens.run("create", "--name", "agent", "--scope", "ingest", "--cluster", "c", "--node", "n41")
    url = str(service.client.base_url.join("/v1/events"))
    batch = {"agent": {"node": "n41", "incarnation": "i"}, "events": told("by-agent")}
    body = gzip.compress(json.dumps(batch).encode())
    config = AgentConfig.from_args([], {"ETT_AGENT_TOKEN": token})
    assert config.token == token
    for headers, status in ((bearer(config.token), 200), ({}, 401)):
        packed = {"Content-Encoding": "gzip", **headers}
        assert status == post(opener_for(url), url, body, packed, 30).status
