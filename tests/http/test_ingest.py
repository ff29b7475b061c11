"""`POST /v1/events` over real HTTP: what is answered, and that it is true (K4, K9)."""

from __future__ import annotations

import gzip
import json
import socket
import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import zstandard

from ett_collector.wire import MAX_BODY, MAX_EVENTS, deflate

if TYPE_CHECKING:
    import httpx
    from sqlalchemy import Engine

    from tests.http.service import Service

S = 1_000_000_000
T = time.time_ns() // S * S - 3600 * S
PROBLEM = "application/problem+json"


def step(seq: int, **more: Any) -> dict[str, Any]:
    at = T + seq * S
    told = {"job": "j", "attempt": "a", "rank": 0, "first": seq, "last": seq, "start": at, "end": at + S}
    return {"seq": seq, "type": "steps", **told, **more}


def envelope(*events: Any, **more: Any) -> dict[str, Any]:
    """A batch of an agent's life of its own."""
    return {"agent": {"node": "n1", "incarnation": uuid.uuid4().hex}, "events": list(events), **more}


def post(service: Service, body: object, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    told = {
        "content-type": "application/json",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    return service.client.post("/v1/events", content=content, headers=told)


def refused(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem, which says what is wrong in words."""
    assert PROBLEM == answer.headers["content-type"]
    problem = answer.json()
    assert answer.status_code == problem["status"]
    assert problem["detail"]
    return answer.status_code, problem["code"]


def rows(engine: Engine, query: str) -> list[Any]:
    with engine.connect() as conn:
        return list(conn.exec_driver_sql(query).scalars())


def test_a_batch_is_answered_when_it_is_stored(service: Service, engine: Engine) -> None:
    before = time.time_ns()
    answer = post(service, body := envelope(step(1), step(2, first="x"), step(3)))
    assert 200 == answer.status_code
    told = answer.json()
    assert before <= told.pop("server_time") <= time.time_ns()
    reason = "first must be an integer, not a string"
    assert {"accepted": 2, "duplicates": 0, "quarantined": [{"index": 1, "seq": 2, "reason": reason}]} == told
    incarnation = body["agent"]["incarnation"]
    query = f"SELECT seq FROM events JOIN sources USING (source_id) WHERE incarnation = '{incarnation}' ORDER BY 1"
    assert [1, 3] == rows(engine, query)


@pytest.mark.parametrize("media", ["json", "msgpack"])
@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd", "ett-zlib"])
def test_every_form_means_the_same(service: Service, media: str, encoding: str) -> None:
    body = envelope(step(1), batches=[{"type": "steps", "job": "j", "attempt": "a", "rank": 0, "columns": {
        "seq": [2, 3], "first": [2, 3], "last": [2, 3], "start": [T, T + S], "end": [T + S, T + 2 * S]}}])  # fmt: skip
    content = json.dumps(body).encode() if media == "json" else msgspec.msgpack.encode(body)
    if encoding != "identity":
        packers = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress, "ett-zlib": deflate}
        content = packers[encoding](content)
    answer = post(service, content, content_type=f"application/{media}", content_encoding=encoding)
    assert (200, 3) == (answer.status_code, answer.json()["accepted"])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"not json", b"[]", b"null", b'"text"', b"[" * 50_000, b'{"agent": 1}', b"{}",
        {"agent": {}}, {"agent": {"node": "n"}}, {"agent": {"node": "", "incarnation": "i"}},
        {"agent": {"node": "n\0", "incarnation": "i"}}, {"agent": {"node": "\ud800", "incarnation": "i"}},
        {"agent": {"node": 7, "incarnation": "i"}}, {"agent": {"node": "x" * 201, "incarnation": "i"}},
        {"agent": {"node": "n", "incarnation": "i"}, "events": {}},
        {"agent": {"node": "n", "incarnation": "i"}, "batches": "x"},
        {"agent": {"node": "n", "incarnation": "i"}, "clock_offset_ns": 1.5},
        {"agent": {"node": "n", "incarnation": "i"}, "clock_offset_ns": float("nan")},
        {"agent": {"node": "n", "incarnation": "i"}, "clock_offset_ns": 2**63},
    ],
    ids=repr,
)  # fmt: skip
def test_a_body_that_is_no_batch_is_refused_as_a_whole(service: Service, body: object) -> None:
    assert (400, "invalid") == refused(post(service, body))


@pytest.mark.parametrize("content", [b"junk", gzip.compress(b"{}", mtime=0)[:-3], b""])
def test_broken_compression_is_refused(service: Service, content: bytes) -> None:
    assert (400, "invalid") == refused(post(service, content, content_encoding="gzip"))
    assert (400, "invalid") == refused(post(service, b"\x28\xb5\x2f\xfd" + content, content_encoding="zstd"))


def test_what_is_not_spoken_is_told(service: Service) -> None:
    assert (415, "unsupported") == refused(post(service, b"a,b", content_type="text/csv"))
    answer = post(service, b"x", content_encoding="br")
    assert (415, "unsupported") == refused(answer)
    assert "gzip, zstd, ett-zlib" == answer.headers["accept-encoding"]


def test_too_much_is_refused(service: Service) -> None:
    too_many = envelope(*(step(n) for n in range(MAX_EVENTS + 1)))
    assert (413, "too_large") == refused(post(service, too_many))
    columns = {"seq": list(range(MAX_EVENTS + 1))}
    assert (413, "too_large") == refused(
        post(service, envelope(batches=[{"type": "steps", "columns": columns}]))
    )
    assert (413, "too_large") == refused(post(service, b" " * (MAX_BODY + 1)))
    bomb = gzip.compress(bytes(40 * MAX_BODY), 9)
    assert (413, "too_large") == refused(post(service, bomb, content_encoding="gzip"))


def test_a_whole_batch_is_taken(service: Service) -> None:
    answer = post(service, envelope(*(step(n) for n in range(MAX_EVENTS))))
    assert (200, MAX_EVENTS) == (answer.status_code, answer.json()["accepted"])


def test_nothing_is_a_batch_too(service: Service) -> None:
    answer = post(service, envelope())
    assert (200, 0, 0) == (answer.status_code, answer.json()["accepted"], answer.json()["duplicates"])


@pytest.mark.parametrize(
    "bad",
    [
        '"first": NaN', '"first": 1e999', '"first": -Infinity', '"first": "NaN"', '"first": 1.5', '"first": -1',
        '"first": 9223372036854775808', '"first": true', '"data_wait": 1e400', '"rank": 100000', '"job": "a\\u0000b"',
        '"attempt": "\\ud800"', '"job": ""', '"start": 0', '"end": 1', '"type": "x"', '"type": ["steps"]',
        '"seq": -1', '"seq": 1.0', '"incarnation": "\\ud800"', '"node": "n9"', '"last": 0',
        '"first": ' + "9" * 10_000,
    ],
)  # fmt: skip
def test_an_event_that_cannot_be_is_refused_alone(service: Service, bad: str) -> None:
    """B80, B81, B84: refused by its place with a reason, its neighbours stored; never an error of the service."""
    body = json.dumps(envelope(step(1), {"BAD": 0}, step(3)))
    event = json.dumps(step(2))[:-1] + f", {bad}}}"
    answer = post(service, body.replace('{"BAD": 0}', event).encode())
    assert (200, 2) == (answer.status_code, answer.json()["accepted"])
    (told,) = answer.json()["quarantined"]
    assert 1 == told["index"]
    assert told["reason"]


@pytest.mark.parametrize("raw", [None, 1, "x", [], {}, [[]], {"type": None}, {"seq": 1}])
def test_anything_may_stand_where_an_event_should(service: Service, raw: object) -> None:
    answer = post(service, envelope(step(1), raw, step(3)))
    assert (200, 2, 1) == (answer.status_code, answer.json()["accepted"], len(answer.json()["quarantined"]))


@pytest.mark.parametrize(
    "batch", [None, 1, {}, {"columns": {}}, {"columns": {"seq": 1}}, {"columns": {"a": [1], "b": []}}]
)
def test_a_bulk_batch_that_cannot_be_read_is_refused_alone(service: Service, batch: object) -> None:
    answer = post(service, envelope(step(1), batches=[batch]))
    assert (200, 1, 1) == (
        answer.status_code,
        answer.json()["accepted"],
        answer.json()["quarantined"][0]["index"],
    )


def test_free_text_is_cleaned_and_the_event_kept(service: Service, engine: Engine) -> None:
    """B81: NUL and lone surrogates in what people read become U+FFFD."""
    fault = (
        '{"seq": 1, "type": "fault", "ts": %d, "kind": "other", "text": "a\\u0000b\\ud800c",'
        ' "x": {"k\\u0000": NaN}}'
    )
    body = json.dumps(envelope({"BAD": 0})).replace('{"BAD": 0}', fault % T)
    assert 1 == post(service, body.encode()).json()["accepted"]
    query = "SELECT body FROM events WHERE job_id = -1 AND body->>'text' LIKE 'a%%b%%c'"
    assert [{"kind": "other", "text": "a\ufffdb\ufffd\ufffd\ufffdc", "x": {"k\ufffd": None}}] == rows(
        engine, query
    )


def test_msgpack_may_hold_what_json_cannot(service: Service) -> None:
    odd: list[Any] = [
        {1: 2, "type": "steps"}, {"type": "phase", "attrs": {1: 1, "a": 2}}, b"bytes",
        msgspec.msgpack.Ext(3, b"x"),
        {"type": "job", "job": "j", "labels": {2: "x", "b": "y"}}, {(1, 2): 3}, float("nan"),
    ]  # fmt: skip
    content = msgspec.msgpack.encode(envelope(step(1), *odd))
    answer = post(service, content, content_type="application/msgpack")
    assert (200, 1, len(odd)) == (
        answer.status_code,
        answer.json()["accepted"],
        len(answer.json()["quarantined"]),
    )


@pytest.mark.parametrize("depth", [100, 800, 900, 950, 980, 1000, 5000])
@pytest.mark.parametrize("media", ["json", "msgpack"])
def test_depth_is_no_error_of_the_service(service: Service, depth: int, media: str) -> None:
    """What lies too deep is left out of an event, or the body is refused."""
    body = envelope(step(1, attrs={"DEEP": 0}), {"type": "DEEP"})
    if media == "json":
        content = (
            json.dumps(body)
            .replace("0}", "[" * depth + "]" * depth + "}")
            .replace('"DEEP"}', '{"a":' * depth + "1" + "}" * depth + "}")
        )
        answer = post(service, content.encode())
    else:
        content = msgspec.msgpack.encode(body).replace(
            b"\xa4DEEP\x00", b"\xa4DEEP" + b"\x91" * depth + b"\x00"
        )
        answer = post(service, content, content_type="application/msgpack")
    assert answer.status_code in (200, 400)


def test_refused_bodies_are_counted(service: Service, engine: Engine) -> None:
    query = "SELECT sum(n)::int FROM ingest_counts WHERE result = 'rejected'"
    before = rows(engine, query)[0] or 0
    post(service, b"junk")
    post(service, b"junk", content_type="text/plain")
    assert before + 2 == rows(engine, query)[0]


def test_a_sender_that_hangs_up_leaves_nothing_behind(service: Service) -> None:
    """Nor does it hold a place: the next batch is stored."""
    host, port = service.client.base_url.host, service.client.base_url.port
    for _ in range(20):
        with socket.create_connection((host, port or 80)) as sender:
            sender.sendall(b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    assert 200 == post(service, envelope(step(1))).status_code
