"""Whatever goes wrong is a problem (RFC 9457) that says what is expected."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from fleet_ett.http.errors import install_errors
from fleet_ett.postgres.pool import open_pool
from tests.http.service import running, serving
from tests.http.story import T0

if TYPE_CHECKING:
    from tests.http.service import Service

LISTS = (
    "/v1/fleet/ett",
    "/v1/fleet/lost-time",
    "/v1/fleet/repeated-work",
    "/v1/jobs",
    "/v1/incidents",
    "/v1/components",
    "/v1/nodes",
    "/v1/quarantine",
)


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem of an answer, checked for the form that all share."""
    assert status == answer.status_code, answer.text
    assert "application/problem+json" == answer.headers["content-type"]
    body = answer.json()
    assert {"type", "title", "status", "detail", "code"} <= set(body)
    assert (status, code, "about:blank") == (body["status"], body["code"], body["type"])
    return body  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("stamp", ["now", "2026-03-02T12:00:00", "1.5e9", "", "2026-03-02"])
def test_a_stamp_that_is_none_is_told_what_it_must_be(service: Service, path: str, stamp: str) -> None:
    """On every path that takes a window."""
    body = problem(service.ask(path, from_=stamp), 400, "invalid")
    assert "RFC 3339 with a zone" in body["detail"]
    assert body["detail"].startswith("from ")


@pytest.mark.parametrize("path", LISTS)
def test_a_window_that_ends_before_it_begins_is_refused(service: Service, path: str) -> None:
    assert (
        "to must not lie before from"
        == problem(service.ask(path, from_=T0, to=T0 - 1), 400, "invalid")["detail"]
    )


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"form": "2026-03-02T12:00:00Z"}, "form"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "W10"}, "cursor"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(
    service: Service, path: str, params: dict[str, str], word: str
) -> None:
    """A misspelt one too: a filter that is not known must not answer for the whole fleet."""
    body = problem(service.ask(path, **params), 400, "invalid")
    assert word in body["detail"]
    assert len(body["detail"]) < 500


@pytest.mark.parametrize("name", ["cluster", "team", "model", "job", "component", "phase", "cause"])
def test_a_filter_that_the_database_cannot_hold_is_refused(service: Service, name: str) -> None:
    """NUL, and names longer than any name."""
    for value in ("a\0b", "x" * 201):
        problem(service.ask("/v1/jobs", **{name: value}), 400, "invalid")
    assert 200 == service.client.get(f"/v1/jobs?{name}=%ED%A0%80").status_code  # no text: nobody's name


def test_a_cursor_belongs_to_its_question(service: Service) -> None:
    """One of another list, or of other filters, is refused."""
    page = {"limit": 1}
    cursor = service.get("/v1/components", **page)["next"]
    assert 200 == service.ask("/v1/components", cursor=cursor, limit=5).status_code
    problem(service.ask("/v1/components", cursor=cursor, team="a"), 400, "invalid")
    problem(service.ask("/v1/jobs", cursor=cursor), 400, "invalid")


@pytest.mark.parametrize(("path", "by"), [("/v1/fleet/ett", "component"), ("/v1/fleet/lost-time", "node")])
def test_a_group_that_is_not_known_is_told_those_that_are(service: Service, path: str, by: str) -> None:
    body = problem(service.ask(path, by=by), 400, "invalid")
    assert "cluster" in body["detail"]


@pytest.mark.parametrize("path", ["/nope", "/v1", "/v1/jobs/", "/v2/jobs", "/v1/jobs//", "/metrics/"])
def test_a_path_that_is_none(service: Service, path: str) -> None:
    assert "not_found" == problem(service.client.get(path), 404, "not_found")["code"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_method_that_a_path_does_not_have(service: Service, method: str) -> None:
    answer = service.client.request(method, "/v1/jobs")
    problem(answer, 405, "method_not_allowed")
    assert "GET" == answer.headers["allow"]


def test_a_bug_is_logged_with_an_id_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The answer carries the id and nothing of the exception."""
    app = FastAPI()
    install_errors(app)

    @app.get("/bug")
    def bug() -> None:
        msg = "secret of the house"
        raise RuntimeError(msg)

    with (
        serving(uvicorn.Config(app, port=0, log_config=None, lifespan="off")) as url,
        caplog.at_level(logging.ERROR),
    ):
        answer = httpx.get(f"{url}/bug", timeout=60)
    body = problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert body["error_id"] in body["detail"]
    (record,) = [one for one in caplog.records if one.name == "fleet_ett.http.errors"]
    assert body["error_id"] in record.getMessage()
    assert "secret of the house" in str(record.exc_info)


def test_without_a_database_the_service_lives_and_says_so() -> None:
    """Liveness is 200; everything else is 503 with a time to come back, and tells nobody the address."""
    engine = open_pool("postgresql://ett:secret@127.0.0.1:1/ett")
    with running(engine) as service:
        assert "ok" == service.get("/healthz")["status"]
        for path in ("/readyz", "/metrics", "/v1/jobs", "/v1/fleet/ett"):
            answer = service.ask(path)
            problem(answer, 503, "unavailable")
            assert int(answer.headers["retry-after"]) > 0
            assert "secret" not in answer.text


def test_a_database_that_is_not_migrated_is_not_ready(postgres: Any) -> None:
    """503 that says what to run."""
    engine = open_pool(postgres.url)
    with running(engine) as service:
        for path in ("/readyz", "/v1/jobs", "/metrics"):
            assert "fleet-ett migrate" in problem(service.ask(path), 503, "unavailable")["detail"]
    engine.dispose()


def test_a_ready_service_names_its_migration(service: Service) -> None:
    """The one that the database is at is the one that the code expects."""
    ready = service.get("/readyz")
    assert "ready" == ready["status"]
    assert ready["migration"] == ready["head"]


def test_the_front_door_leads_somewhere(service: Service) -> None:
    """JSON for programs, a page for browsers; every link answers."""
    links = service.get("/")["links"]
    for path in links.values():
        assert 200 == service.client.get(path).status_code
    page = service.ask("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")
    assert 'href="/v1/jobs"' in page.text
