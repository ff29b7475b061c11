"""A reader of one team against everything of another's, on every path that OpenAPI lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.security.bearers import DENIED, INVALID, Tokens, id_of, problem, send, told

if TYPE_CHECKING:
    import httpx

    from tests.http.service import Service

# What only the other team's job has (see `conftest.py`).
THEIRS = ("search", "n2", "prod-b")
CSV = {"Accept": "text/csv"}
PROBES = {"/healthz", "/readyz"}
OF_ALL = {"/metrics", "/v1/quarantine"}
PAGED = ("/v1/jobs", "/v1/incidents", "/v1/nodes", "/v1/fleet/ett", "/v1/fleet/lost-time", "/v1/components")


@pytest.fixture
def team(tokens: Tokens) -> dict[str, str]:
    """A token that reads the team `ads`."""
    return tokens.create("--scope", "read", "--team", "ads")


@pytest.fixture
def admin(tokens: Tokens) -> dict[str, str]:
    return tokens.create("--scope", "admin")


def paths(service: Service, admin: dict[str, str]) -> list[str]:
    """Every path that can be asked, with a job and a component that there are."""
    document = service.ask("/openapi.json", admin).json()
    found = [path for path, ways in document["paths"].items() if "get" in ways]
    assert len(found) > 14
    return [path.replace("{job}", "ads-1").replace("{name}", "compiler") for path in found]


def said(answer: httpx.Response) -> str:
    return answer.text + str(answer.headers)


def test_no_path_shows_another_teams_names(
    service: Service, team: dict[str, str], admin: dict[str, str]
) -> None:
    """In JSON and in CSV, with and without groups; what is of the whole fleet is refused."""
    for path in paths(service, admin):
        for form in ({}, CSV):
            answer = service.ask(path, {**team, **form})
            assert (403 if path in OF_ALL else 200) == answer.status_code, (path, answer.text)
            assert [] == [name for name in THEIRS if name in said(answer)], path
    groups = {
        "/v1/fleet/ett": ("cluster", "team", "model", "framework", "job", "hour"),
        "/v1/fleet/lost-time": (
            "component",
            "owner",
            "phase",
            "heading",
            "cause",
            "kind",
            "cluster",
            "team",
            "job",
        ),
    }
    for path, several in groups.items():
        for by in several:
            answer = service.ask(path, team, by=by)
            assert 200 == answer.status_code, answer.text
            assert [] == [name for name in THEIRS if name in said(answer)], (path, by)


def test_filters_are_no_oracle(service: Service, team: dict[str, str]) -> None:
    """Asked for what another team has and for what nobody has, the answers are the same but for the name."""
    for path in ("/v1/jobs", "/v1/incidents", "/v1/nodes", "/v1/fleet/ett", "/v1/fleet/lost-time"):
        for name, real, made_up in (("job", "search-1", "search-0"), ("cluster", "prod-b", "prod-0")):
            answers = [service.ask(path, team, **{name: value}) for value in (real, made_up)]
            assert [200, 200] == [one.status_code for one in answers]
            assert answers[0].json() == answers[1].json(), (path, name)
        answers = [service.ask(path, team, team=value) for value in ("search", "nobody")]
        assert [DENIED, DENIED] == [problem(one) for one in answers]
        assert answers[0].json() == answers[1].json()


def test_who_asks_for_others_is_noted(service: Service, tokens: Tokens, team: dict[str, str]) -> None:
    for path in ("/v1/jobs?team=search", "/v1/quarantine", "/metrics"):
        assert 403 == service.client.get(path, headers=team).status_code
    assert 403 == send(service, team, "n1", *told("j")).status_code
    lines = [
        line.split("\t") for line in tokens.run("audit").splitlines() if f"token {id_of(team)}\t" in line
    ]
    noted = {(line[2], json.loads(line[3])["path"]) for line in lines}
    assert {
        ("refused: beyond its teams", "/v1/jobs"),
        ("refused: beyond its teams", "/v1/quarantine"),
        ("refused: beyond the scope read", "/metrics"),
        ("refused: beyond the scope read", "/v1/events"),
    } == noted
    assert len(noted) == len(lines)


def test_a_cursor_is_good_for_who_got_it(
    service: Service, team: dict[str, str], admin: dict[str, str]
) -> None:
    for path in PAGED:
        question: dict[str, Any] = {"by": "hour"} if "fleet" in path else {}
        first = service.ask(path, admin, limit=1, **question).json()
        if path != "/v1/components":
            assert first["next"], path
        taken = service.ask(path, team, cursor=first["next"], **question)
        assert 400 == taken.status_code, path
        assert "cursor must be" in taken.json()["detail"]


def test_each_path_needs_a_token_that_covers_it(
    service: Service, tokens: Tokens, admin: dict[str, str]
) -> None:
    """A token of the scope `metrics` opens the Prometheus page alone; one that sends reads nothing."""
    scraper = tokens.create("--scope", "metrics")
    sender = tokens.create("--scope", "ingest", "--all")
    assert 200 == service.ask("/metrics", scraper).status_code
    for path in [*paths(service, admin), "/", "/docs", "/openapi.json", "/nowhere", "/v1/jobs/search-1"]:
        if path in PROBES:
            assert 200 == service.ask(path).status_code
            continue
        assert INVALID == problem(service.ask(path)), path
        assert DENIED == problem(service.ask(path, sender)), path
        if path != "/metrics":
            assert DENIED == problem(service.ask(path, scraper)), path


def test_probes_and_refusals_tell_no_names(service: Service, team: dict[str, str]) -> None:
    """Neither without a token nor in the text of an error."""
    for path in ("/healthz", "/readyz", "/v1/jobs", "/v1/jobs/search-1", "/v1/fleet/ett?team=search"):
        asked = path.partition("search")[1]
        for header in ({}, team):
            text = said(service.client.get(path, headers=header)).replace(asked, "")
            assert [] == [
                name for name in ("prod-b", "n2", "ads-1") if name in text and path != "/v1/jobs"
            ], path


def test_no_method_but_the_documented_one_does_anything(service: Service, admin: dict[str, str]) -> None:
    for method in ("PUT", "DELETE", "PATCH", "POST", "OPTIONS", "TRACE"):
        for path in ("/v1/jobs", "/v1/jobs/ads-1", "/metrics", "/"):
            assert 405 == service.client.request(method, path, headers=admin).status_code, (method, path)
