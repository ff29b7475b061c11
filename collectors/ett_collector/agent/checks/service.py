"""The service: whether it can be reached, takes this node's token, what its clock says; and the agent's own page."""

from __future__ import annotations

import time
import urllib.parse
import urllib.request
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING

from ett_collector.agent.batches import GZIP, body
from ett_collector.agent.checks.line import FAIL, OK, WARN, Line
from ett_collector.agent.offset import ClockOffset
from ett_collector.agent.post import Answer, get, opener_for, post
from ett_collector.agent.ship import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ett_collector.agent.config import AgentConfig

TRIPS = 3
FAR_S = 1.0
PATIENCE_S = 10.0


def check_service(config: AgentConfig) -> Iterator[Line]:
    """Reachable, ready, this token for this node, the clock."""
    opener = opener_for(config.url, config.ca)
    patience = min(config.timeout_s, PATIENCE_S)
    alive = get(opener, config.url + "/healthz", {}, patience)
    if not alive.status:
        do = "ETT_URL, the network, a firewall; with https also ETT_AGENT_CA"
        yield Line("service", FAIL, f"{config.url}: {alive.error}", do)
        return
    if alive.status != HTTPStatus.OK or alive.body is None or "version" not in alive.body:
        yield Line(
            "service", FAIL, f"{config.url} is no fleet-ett: /healthz says {alive.status}", "look at ETT_URL"
        )
        return
    version = str(alive.body["version"])
    trip = (alive.mono_received - alive.mono_sent) / 1e6
    said = f"{config.url}: version {version}, this agent {VERSION}, {trip:.0f} ms away"
    older = _numbers(version) < _numbers(VERSION)
    do = "the service is older than the agent: it may not know all that is sent"
    yield Line("service", WARN, said, do) if older else Line("service", OK, said)
    ready = get(opener, config.url + "/readyz", {}, patience)
    if ready.status != HTTPStatus.OK:
        said = f"not ready: {ready.status} {ready.error[:200]}"
        yield Line("service", WARN, said, "its operator knows why; the agent keeps what it has")
    yield from _token(config, opener, patience)


def check_page(config: AgentConfig) -> Iterator[Line]:
    """The agent's own page, as it is served now."""
    if config.metrics is None:
        do = "set ETT_AGENT_METRICS, as :9477, for Prometheus to see this agent"
        yield Line("metrics", OK, f"off ({do})")
        return
    host, port = config.metrics
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - to ask, not to serve
    url = f"http://[{host}]:{port}/healthz" if ":" in host else f"http://{host}:{port}/healthz"
    answer = get(opener_for(url), url, {}, PATIENCE_S)
    if answer.status == HTTPStatus.OK:
        yield Line("metrics", OK, f"served on port {port}")
    else:
        said = f"{url}: {answer.status or ''} {answer.error}".strip()
        yield Line("metrics", WARN, said, "is the agent running, and is the port another program's?")


def _token(config: AgentConfig, opener: urllib.request.OpenerDirector, patience: float) -> Iterator[Line]:
    """Post empty batches: they are answered like any other and change nothing."""
    agent = {"node": config.node, "incarnation": uuid.uuid4().hex, "version": VERSION}
    headers = {
        "Content-Encoding": GZIP,
        **({"Authorization": f"Bearer {config.token}"} if config.token else {}),
    }
    offset = ClockOffset()
    for _ in range(TRIPS):
        content = body(agent, 0, time.time_ns(), [], GZIP)
        answer = post(opener, config.url + "/v1/events", content.data, headers, patience)
        stamp = answer.body.get("server_time") if answer.body is not None else None
        if answer.status != HTTPStatus.OK:
            yield _refused(config, answer)
            return
        if type(stamp) is int:
            offset.sample(answer.sent, answer.mono_sent, answer.mono_received, stamp)
    used = "with the token" if config.token else "without a token"
    plain = config.token and urllib.parse.urlsplit(config.url).scheme == "http"
    yield Line("token", OK, f"takes events of {config.node} {used}{' (over http)' if plain else ''}")
    seconds = (offset.value or 0) / 1e9
    said = (
        f"this node's clock is {abs(seconds):.3f} s {'ahead of' if seconds > 0 else 'behind'} the service's"
    )
    far = abs(seconds) > FAR_S
    yield (
        Line("clock", WARN, said, "stamps are corrected; let NTP or chrony set it")
        if far
        else Line("clock", OK, said)
    )


def _refused(config: AgentConfig, answer: Answer) -> Line:
    said = f"events of {config.node} get {answer.status or 'no answer'}: {answer.error[:200]}"
    make = f"fleet-ett token create --scope ingest --cluster ... --node {config.node}"
    if answer.status == HTTPStatus.UNAUTHORIZED:
        which = "ETT_AGENT_TOKEN_FILE has a wrong or ended one" if config.token else "none is set"
        return Line("token", FAIL, said, f"{which}: {make}")
    if answer.status == HTTPStatus.FORBIDDEN:
        return Line("token", FAIL, said, f"the token is not for this node or not for sending: {make}")
    if answer.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return Line("token", WARN, said, "the service is under pressure; the agent keeps what it has")
    return Line("token", FAIL, said, "is something between this node and the service?")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
