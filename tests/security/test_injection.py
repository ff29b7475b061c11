"""Names that are code elsewhere: in SQL, CSV, HTML, headers, logs, paths and on the Prometheus page."""

from __future__ import annotations

import base64
import contextlib
import csv
import http.client
import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleet_ett.serve import OneLine
from tests.http.story import rollback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.http.service import Service

NAMES = [
    "'; DROP TABLE jobs; --",
    '" OR 1=1 --',
    "%_\\'||pg_sleep(9)||'",
    "{job} %s %(job)s :job $1",
    "=cmd|' /C calc'!A0",
    "+1;=HYPERLINK(1)",
    "@SUM(1)\t=1",
    "-2\r\n=3",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a\r\nSet-Cookie: a=b\r\n\r\n<html>",
    'x"} 1\nett_evil_total{a="',
    "\\",
    "../../etc/passwd",
    "..%2f..%2fetc/passwd",
    "a/../b/./c//d",
    "a?b#c&d=e",
    "\u202egnp.exe\u2066",
    "e\u0301 \u00e9 \ufeff \u2028",
    "\U0001f4a9" * 10,
    "\x1b[2J\x07\x7f",
    "null",
    "job/ledger",
]  # fmt: skip


@pytest.fixture(scope="module")
def service(open_service: Service) -> Iterator[Service]:
    """A job for each name, which is also its cluster, team, model, node and a label."""
    for name in NAMES:
        who = {"cluster": name, "team": name, "model": name, "name": name}
        open_service.book(rollback(name, node=name, key=name, **who, labels={"label": name}))
    yield open_service
    assert len(NAMES) == len(open_service.pages("/v1/jobs"))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_as_it_is_and_nothing_else(service: Service, name: str) -> None:
    """As a filter, in a group, in the path of a job, and back in the answer."""
    for field in ("job", "cluster", "team", "model"):
        assert [name] == [row[field] for row in service.get("/v1/jobs", **{field: name})["items"]]
        (row,) = service.get("/v1/fleet/ett", by=field, **{field: name})["items"]
        assert name == row[field]
    assert {name} == {row["job"] for row in service.get("/v1/incidents", job=name)["items"]}
    assert [name] == [row["node"] for row in service.get("/v1/nodes", job=name)["items"]]
    detail = service.job(name)
    assert (name, name, {"label": name}) == (detail["job"], detail["name"], detail["labels"])
    for part in ("/ledger", "/timeline", "/goodput"):
        answer = service.ask(f"/v1/jobs/{quote(name, safe='')}{part}")
        assert 200 == answer.status_code, answer.text


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/incidents", "/v1/nodes"])
def test_pages_and_csv_hold_every_name(service: Service, path: str) -> None:
    """A cursor of any name leads on; no cell of the CSV begins a formula, by commas or by semicolons."""
    field = "node" if path == "/v1/nodes" else "job"
    assert set(NAMES) == {row[field] for row in service.pages(path, limit=1)}
    answer = service.ask(path, {"Accept": "text/csv"}, limit=1000)
    assert "text/csv" in answer.headers["content-type"]
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert len(rows) >= len(NAMES)
    for separator in (",", ";", "\t"):
        for row in csv.reader(io.StringIO(answer.text, newline=""), delimiter=separator):
            for cell in row:
                is_number = cell.removeprefix("-").replace(".", "", 1).isdigit()
                assert is_number or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell


@pytest.mark.parametrize("name", NAMES)
def test_headers_and_errors_carry_no_markup(service: Service, name: str) -> None:
    """Whatever an answer repeats, it repeats as text: one header a line, never HTML, nothing sniffed."""
    encoded = quote(name, safe="")
    asked = (
        f"/v1/jobs/{encoded}/timeline?limit=1",
        f"/v1/jobs/{encoded}0",
        f"/v1/jobs?job={encoded}&limit=1",
        f"/v1/components/{encoded}",
        f"/v1/jobs?{encoded}={encoded}",
        f"/v1/jobs?from={encoded}",
        f"/v1/fleet/ett?by={encoded}",
        f"/{encoded}",
    )
    for path in asked:
        answer = service.client.get(path)
        assert answer.status_code in (200, 400, 404), (path, answer.text)
        assert "set-cookie" not in answer.headers
        assert answer.headers["content-type"].partition(";")[0] in (
            "application/json",
            "application/problem+json",
        )
        assert "nosniff" == answer.headers["x-content-type-options"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        json.loads(answer.text)
        link = answer.headers.get("link")
        assert link is None or (link.startswith("</v1/jobs") and link.endswith('>; rel="next"'))


def test_the_documentations_scripts_may_ask_this_service_alone(service: Service) -> None:
    """They come from another host: what they see here, they cannot send there."""
    page = service.ask("/docs")
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert ("'none'", "'self'") == (policy["default-src"], policy["connect-src"])
    assert [] == [
        src for src in re.findall(r'src="(https://[^/"]+)', page.text) if src not in policy["script-src"]
    ]


def test_the_prometheus_page_holds_labels_and_no_lines_of_a_stranger(service: Service) -> None:
    text = service.ask("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert [] == [name for name in families if not name.startswith("ett_")]
    assert "ett_evil" not in families
    teams = {sample.labels["team"] for sample in families["ett_attempts"].samples}
    assert set(NAMES) == teams


def test_the_log_is_one_line_a_message() -> None:
    """What a stranger names cannot write a line of its own or steer a terminal."""
    for name in NAMES:
        record = logging.LogRecord("n", logging.WARNING, "f", 1, "job %s\n%s", (name, name), None)
        line = OneLine("%(levelname)s %(message)s").format(record)
        assert line.isprintable(), line
        assert line.startswith("WARNING job ")


KEYS: list[Any] = [
    ["0" * 16, 2**80],
    ["0" * 16, "'; DROP TABLE jobs; --"],
    [None],
    {"a": 1},
    ["0" * 16, [[]], {}],
    ["0" * 16, True],
    ["0" * 16, "\ud800"],
]


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/incidents", "/v1/nodes", "/v1/fleet/ett?by=team", "/v1/quarantine"]
)
def test_a_cursor_that_was_tampered_with_is_refused(service: Service, path: str) -> None:
    first = service.client.get(path, params={"limit": 1} if "?" not in path else None).json()
    made = [base64.urlsafe_b64encode(json.dumps(key).encode()).decode() for key in KEYS]
    if first["next"]:
        question = json.loads(base64.urlsafe_b64decode(first["next"] + "=="))[0]
        for key in KEYS:
            if isinstance(key, list):
                told = json.dumps([question, *key[1:], *key[1:]]).encode()
                made.append(base64.urlsafe_b64encode(told).decode())
    sign = "&" if "?" in path else "?"
    for cursor in [*made, "A" * 4000, "%00", "=", "a b", "\u202e", "W10", "[" * 2000]:
        answer = service.client.get(f"{path}{sign}cursor={quote(cursor)}")
        assert 400 == answer.status_code, (cursor, answer.text)
        assert "application/problem+json" == answer.headers["content-type"]


def test_huge_questions_are_refused_and_cost_little(service: Service) -> None:
    """Too many values, too many names, too long a line, a NUL: told, never a 500."""
    for query, status in (
        ("&".join(f"job={number}" for number in range(101)), 400),
        ("&".join(f"n{number}=1" for number in range(3000)), 400),
        ("job=" + "x" * 201, 400),
        ("job=" + "x" * 60_000, 400),
        ("job=%00", 400),
        ("job=%ff%fe", 200),
        ("from=" + "9" * 5000, 400),
        ("limit=" + "9" * 5000, 400),
        ("by=" + ",".join(["cluster"] * 5000), 400),
    ):
        answer = service.client.get(f"/v1/jobs?{query}")
        assert status == answer.status_code, (query[:80], answer.text)
        assert len(answer.content) < 40_000
    for path, headers in (("x" * 1_000_000, {}), ("x", {"X-Long": "y" * 1_000_000})):
        line = http.client.HTTPConnection(service.client.base_url.host, service.client.base_url.port)
        with contextlib.suppress(ConnectionError):  # it may hang up before it has heard all
            line.request("GET", f"/v1/jobs?job={path}", headers=headers)
            assert 400 == line.getresponse().status
        line.close()
    assert service.client.get("/v1/jobs/" + "a/" * 10_000).status_code in (400, 404)
    assert 404 == service.client.get("/v1/jobs/%00").status_code


def test_an_open_door_is_open_to_this_machine_alone(service: Service) -> None:
    """Without tokens: not to a name that leads here (DNS rebinding), nor to a page of another site (CSRF)."""
    port = service.client.base_url.port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "169.254.169.254",
        "localhost.evil.example",
        "",
        "[::1",
    ):
        assert service.ask("/v1/jobs", {"Host": host}).status_code in (400, 403), host
    for host in (
        "localhost",
        f"localhost:{port}",
        f"127.0.0.1:{port}",
        "127.1.2.3",
        f"[::1]:{port}",
        "LOCALHOST",
    ):
        assert 200 == service.ask("/v1/jobs", {"Host": host}).status_code, host
    for header in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert 403 == service.ask("/v1/jobs", header).status_code, header
        body = {"agent": {"node": "n", "incarnation": "i"}, "events": []}
        assert 403 == service.client.post("/v1/events", json=body, headers=header).status_code, header
    assert 200 == service.ask("/v1/jobs", {"Origin": f"http://localhost:{port}"}).status_code
    assert (
        "access-control-allow-origin" not in service.ask("/v1/jobs", {"Origin": "http://localhost"}).headers
    )
