"""Many strangers: what they cost, and what they cannot do to those who are known."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
from sqlalchemy import event

from tests.security.bearers import Tokens, bearer, id_of, problem, until

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.http.service import Service


def forged() -> dict[str, str]:
    return bearer(f"ett_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}")


def test_forged_tokens_hardly_ask_the_database(service: Service, tokens: Tokens, engine: Engine) -> None:
    """Hundreds of ids that nobody has cost a handful of questions, and no memory."""
    good = tokens.create("--scope", "read", "--all")
    assert 200 == service.ask("/v1/components", good).status_code
    asked: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    with (
        httpx.Client(base_url=service.client.base_url, timeout=60) as client,
        ThreadPoolExecutor(32) as strangers,
    ):
        statuses = list(
            strangers.map(lambda _: client.get("/v1/jobs", headers=forged()).status_code, range(640))
        )
    assert {401} == set(statuses)
    questions = [text for text in asked if "token" in text]
    assert len(questions) < 320, len(questions)  # about one for each 32
    known = service.app.state.tokens._known
    assert all(len(one) == 16 for one in known)
    assert len(known) == len(tokens.run("list").splitlines())


def test_a_token_is_good_the_moment_it_is_made(service: Service, tokens: Tokens) -> None:
    """Also right after a stranger was refused."""
    for _ in range(3):
        assert 401 == service.ask("/v1/components", forged()).status_code
        assert 200 == service.ask("/v1/components", tokens.create("--scope", "read", "--all")).status_code


def test_what_a_revoked_token_tries_is_noted(service: Service, tokens: Tokens) -> None:
    """Who knows its secret is worth a note; who guesses at its id is not."""
    header = tokens.create("--scope", "read", "--all")
    tokens.run("revoke", id_of(header))
    assert 401 == problem(until(401, service, "/v1/jobs", header))[0]
    assert 401 == service.ask("/v1/jobs", bearer(f"ett_{id_of(header)}_{'A' * 43}")).status_code
    lines = [line for line in tokens.run("audit").splitlines() if f"token {id_of(header)}\t" in line]
    assert ["refused: the token is revoked"] == [line.split("\t")[2] for line in lines]


def test_the_audit_log_is_bounded(tokens: Tokens, engine: Engine) -> None:
    """Old refusals go, and the oldest beyond the bound; what was done to tokens stays."""
    from fleet_ett.postgres import audit

    day = 86_400_000_000_000
    with engine.begin() as conn:
        conn.exec_driver_sql(
            "INSERT INTO audit (at_ns, who, what, detail)"
            " SELECT n, 'token x', 'refused: old', '{}' FROM generate_series(1, 100) n"
        )
        audit.prune_audit(conn, now=audit.MAX_REFUSAL_NS + 50)
        left = "SELECT count(*) FROM audit WHERE what = 'refused: old'"
        assert 51 == conn.exec_driver_sql(left).scalar_one()
        audit.prune_audit(conn, now=audit.MAX_REFUSAL_NS + day)
        assert 0 == conn.exec_driver_sql(left).scalar_one()
    assert "token created" in tokens.run("audit")
