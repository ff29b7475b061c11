"""Who knocks: tokens by the command line, and what is sent and asked with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fleet_ett.__main__ import main

if TYPE_CHECKING:
    import httpx
    import pytest

    from tests.http.service import Service


class Tokens:
    """The command line on the module's database."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.capsys = capsys

    def run(self, *args: str) -> str:
        code = main(["token", *args, "--database-url", self.url])
        told = self.capsys.readouterr()
        assert 0 == code, told.err
        return told.out.strip()

    def create(self, *args: str, name: str = "somebody") -> dict[str, str]:
        """The header of a new token."""
        return bearer(self.run("create", "--name", name, *args))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def id_of(header: dict[str, str]) -> str:
    return header["Authorization"].split("_")[1]


def until(status: int, service: Service, path: str, header: dict[str, str] | None = None) -> httpx.Response:
    """The answer of that status, for which a process may need a moment."""
    for _ in range(100):
        answer = service.ask(path, header)
        if status == answer.status_code:
            return answer
        time.sleep(0.1)
    raise AssertionError(answer.text)


def send(service: Service, header: dict[str, str], node: str, *events: Any) -> httpx.Response:
    agent = {"node": node, "incarnation": f"{time.time_ns()}"}
    return service.client.post("/v1/events", json={"agent": agent, "events": list(events)}, headers=header)


def told(job: str, cluster: str | None = None) -> list[dict[str, Any]]:
    """A job's description, and an attempt of it."""
    said = {"cluster": cluster} if cluster else {}
    at = time.time_ns()
    return [
        {"seq": 0, "type": "job", "job": job, **said},
        {"seq": 1, "type": "attempt_start", "job": job, "attempt": "x", "ts": at, "gpus": 8, "world_size": 1},
    ]


def problem(answer: httpx.Response) -> tuple[int, str, str | None]:
    """Status, code, and what the challenge says is wrong."""
    assert "application/problem+json" == answer.headers["content-type"]
    challenge = answer.headers.get("www-authenticate")
    return answer.status_code, answer.json()["code"], challenge


INVALID = (401, "unauthorized", 'Bearer realm="fleet-ett", error="invalid_token"')
DENIED = (403, "denied", 'Bearer realm="fleet-ett", error="insufficient_scope"')
