"""The agent's own page: what Prometheus reads there, and that the alerts on it fire."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.collectors.conftest import Bench, bench, receiver, until
from tests.ports import free_port
from tests.prometheus.programs import program
from tests.prometheus.running import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bench", "receiver"]
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yaml"
TRAINER = "import ett_collector as ett\nett.start('j', attempt='a')\nett.step(0); say('up'); wait()"


def page_of(port: int, path: str = "/metrics") -> tuple[int, str]:
    """(status, text) of the agent's page."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    line.request("GET", path)
    answer = line.getresponse()
    found = answer.status, answer.read().decode()
    line.close()
    return found


def values(text: str) -> dict[str, float]:
    """The samples of a page by name and labels."""
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def test_page(bench: Bench) -> None:
    """promtool finds nothing to say about it, and its figures are those of the agent."""
    port = free_port()
    agent = bench.agent("--metrics", f"127.0.0.1:{port}")
    bench.trainer(TRAINER)
    until(lambda: [e for e in bench.receiver.of("heartbeat") if e.body["jobs"]])
    until(lambda: values(page_of(port)[1])["ett_agent_sent_total"] >= 4)
    status, text = page_of(port)
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (200, 0, "") == (status, checked.returncode, checked.stdout + checked.stderr)
    found = values(text)
    assert (1, 1) == (found["ett_agent_trainers"], found["ett_agent_jobs"])
    assert (0, 0) == (found["ett_agent_dropped_total"], found["ett_agent_refused_total"])
    assert found["ett_agent_spool_bytes"] > 0
    assert found["ett_agent_outbox_bytes"] > 0
    assert abs(found["ett_agent_last_success_timestamp_seconds"] - time.time()) < 60
    assert found["process_resident_memory_bytes"] > 1e6
    assert 'ett_agent_source_up{source="kernel_log"}' in found
    assert (200, "ok\n") == page_of(port, "/healthz")
    assert 404 == page_of(port, "/")[0]
    slow = [
        socket.create_connection(("127.0.0.1", port)) for _ in range(20)
    ]  # who says nothing takes no place for long
    until(lambda: page_or_none(port) is not None)
    for line in slow:
        line.close()
    bench.stop(agent)


def page_or_none(port: int) -> tuple[int, str] | None:
    try:
        return page_of(port)
    except (OSError, http.client.HTTPException):
        return None


def test_taken_address_costs_the_page_alone(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        agent = bench.agent("--metrics", f"127.0.0.1:{other.getsockname()[1]}")
        until(lambda: bench.receiver.of("heartbeat"))
        assert "no /metrics on 127.0.0.1" in bench.stop(agent)


def test_prometheus_scrapes_it(bench: Bench, tmp_path: Path) -> None:
    """A real Prometheus with the shipped expressions: an agent that cannot send is seen to be behind."""
    port, prometheus = free_port(), free_port()
    agent = bench.agent("--metrics", f"127.0.0.1:{port}", url="http://127.0.0.1:9")
    until(lambda: listens(port))
    job = {"job_name": "ett-agent", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    command = [
        program("prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{prometheus}",
    ]
    with (tmp_path / "prometheus.log").open("w") as log:
        bench.running.append(subprocess.Popen(command, stdout=log, stderr=log, text=True))
    until(lambda: is_ready(f"127.0.0.1:{prometheus}"))  # it listens before it answers

    behind = dict(alerts())["EttAgentBehind"]
    assert "ett_agent_oldest_unsent_seconds > 600" == behind
    until(lambda: answers(prometheus, behind.replace("600", "1")))
    # a scrape that a busy machine makes late is a target that is down for a second
    until(lambda: [1.0] == answers(prometheus, 'up{job="ett-agent"}'))
    until(lambda: [0.0] == answers(prometheus, "ett_agent_dropped_total"))
    bench.stop(agent)


def alerts() -> Iterator[tuple[str, str]]:
    """The shipped alerts on agents: name and expression."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            if rule.get("alert", "").startswith("EttAgent"):
                yield rule["alert"], rule["expr"]


def answers(port: int, expression: str) -> list[float]:
    """The values that Prometheus has for an expression now."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
        return [float(one["value"][1]) for one in json.load(answer)["data"]["result"]]
