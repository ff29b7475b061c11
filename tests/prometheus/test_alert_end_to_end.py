"""From an event to somebody's telephone: a real service, Prometheus and Alertmanager, with short windows."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from fleet_ett.demo.backstage import LISTENS, stop
from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import render
from tests.ports import free_port
from tests.prometheus.programs import program
from tests.prometheus.running import ask, is_ready, webhook
from tests.test_cli import environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import Queue

GPUS = 64
PATIENCE_S = 90  # a shared machine has slow moments
OBJECTIVES = """
url: http://ett
clusters:
  default: {ett_pct: 90, burn_rates: [{severity: page, long: 12s, short: 6s, factor: 5}]}
windows: [12s, 30s]
period: 5m
evaluation_interval: 1s
slow_evaluation_interval: 5s
scrape_gap: 10s
regressions: {now: 60s, past: 5m, for: 30s}
"""


class Trainer(threading.Thread):
    """A job whose only rank reports twice a second: steps while it is well, waiting for data while it is not."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.client = httpx.Client(base_url=url, timeout=30)
        self.well = True
        self.ended = threading.Event()

    def run(self) -> None:
        seq, step, last = count(), 0, time.time_ns()
        who = {"job": "training", "attempt": "first"}
        told: list[dict[str, Any]] = [
            {"type": "job", "job": "training", "cluster": "c1", "team": "ads"},
            {"type": "attempt_start", **who, "ts": last, "gpus": GPUS, "world_size": 1, "nodes": ["n1"]},
        ]
        while not self.ended.wait(0.5):
            now = time.time_ns()
            span = {**who, "rank": 0, "start": last, "end": now}
            if self.well:
                told.append({"type": "steps", "first": step + 1, "last": step + 5, **span})
                step += 5
            else:
                told.append({"type": "phase", "phase": "data_stall", **span})
            told.append({"type": "heartbeat", **who, "rank": 0, "ts": now})
            events = [{"seq": next(seq), **one} for one in told]
            agent = {"node": "n1", "incarnation": "only", "version": "1.0"}
            answer = self.client.post("/v1/events", json={"agent": agent, "events": events})
            assert [] == answer.raise_for_status().json()["quarantined"]
            told, last = [], now
        self.client.close()


def delivered(alerts: Queue[dict[str, Any]], name: str, status: str) -> dict[str, Any]:
    """The next alert of that name and status. Fails when none comes."""
    until = time.monotonic() + PATIENCE_S
    seen = []
    while time.monotonic() < until:
        try:
            alert = alerts.get(timeout=1)
        except Empty:
            continue
        seen.append((alert["labels"]["alertname"], alert["status"]))
        if seen[-1] == (name, status):
            return alert
    pytest.fail(f"{name} was not {status}: {seen}")


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_a_fall_of_ett_reaches_the_webhook_and_recovery_resolves_it(
    database_url: str, tmp_path: Path
) -> None:
    """Steps, then waiting, then steps again; two scraped addresses are one fleet."""
    with ExitStack() as stack:

        def run(*command: str | Path, **settings: str) -> subprocess.Popen[str]:
            log = stack.enter_context((tmp_path / f"{Path(command[0]).name}.log").open("w"))
            process = subprocess.Popen(
                command,
                env=environment(**settings),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=tmp_path,
            )
            stack.callback(lambda: (stop(process), process.stdout and process.stdout.close()))
            return process

        hook, alerts = stack.enter_context(webhook())
        service = run(
            sys.executable, "-m", "fleet_ett", "serve", "--port", "0", "--database-url", database_url,
            ETT_LATENESS_S="1",
        )  # fmt: skip
        assert service.stdout is not None
        port = int(service.stdout.readline().removeprefix(LISTENS).rpartition(":")[2])
        prometheus = start_programs(run, tmp_path, port, hook)
        trainer = Trainer(f"http://127.0.0.1:{port}")
        stack.callback(lambda: (trainer.ended.set(), trainer.join()))
        trainer.start()

        wait_for(lambda: 0.9 < (ask(prometheus, "cluster:ett_ratio:increase12s") or 0))
        wait_for(
            lambda: (
                abs(
                    (ask(prometheus, f"sum(cluster:ett_held_gpu_seconds:increase12s) / 12 / {GPUS}") or 0) - 1
                )
                < 0.4
            )
        )
        trainer.well = False
        alert = delivered(alerts, "EttBudgetBurn", "firing")
        assert ("c1", "page", "training-sre") == tuple(
            alert["labels"][name] for name in ("cluster", "severity", "owner")
        )
        assert "http://ett/v1/fleet/lost-time?by=component&cluster=c1" == alert["annotations"]["page_url"]
        trainer.well = True
        delivered(alerts, "EttBudgetBurn", "resolved")


def start_programs(run: Callable[..., subprocess.Popen[str]], folder: Path, port: int, hook: str) -> str:
    """Alertmanager and Prometheus, ready; returns Prometheus' address."""
    manager, prometheus = (f"127.0.0.1:{free_port()}" for _ in range(2))
    (folder / "rules.yaml").write_text(render(read_objectives(OBJECTIVES)))
    route = {"receiver": "hook", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"}
    receivers = [{"name": "hook", "webhook_configs": [{"url": hook}]}]
    (folder / "alertmanager.yml").write_text(yaml.safe_dump({"route": route, "receivers": receivers}))
    # the same service by two names, as two replicas with one database would be
    targets = [f"127.0.0.1:{port}", f"localhost:{port}"]
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]},
        "scrape_configs": [{"job_name": "fleet-ett", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    run(
        program("prometheus-alertmanager", "alertmanager"), "--config.file=alertmanager.yml",
        "--storage.path=alertmanager", f"--web.listen-address={manager}", "--cluster.listen-address=",
    )  # fmt: skip
    run(
        program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
        f"--web.listen-address={prometheus}", "--rules.alert.resend-delay=1s",
    )  # fmt: skip
    for address in (manager, prometheus):
        wait_for(lambda address=address: is_ready(address))
    return prometheus
