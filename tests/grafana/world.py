"""A day of a small fleet: its books in the real service, its history and rules in the real Prometheus."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.grafana.boards import DEPLOY
from tests.http.story import T0, Job, S
from tests.ports import free_port
from tests.prometheus.programs import program
from tests.prometheus.running import is_ready
from tests.prometheus.test_alert_end_to_end import wait_for
from tests.test_cli import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.http.service import Service

HOURS = 14  # the past of a regression is 6 h away
STEP_S = 270  # a counter must be seen every 5 minutes
RESTARTS = 12  # at least 10 in both times, or nothing is compared
# What is there last: a second scrape, an alert, and the rules that stand on the others.
LAST = (
    "up",
    "rate(ett_agent_sent_total[5m])",
    "ALERTS",
    "cluster:ett_budget_left:30d",
    "cluster_component:ett_expected:regression",
)


def fleet(now_s: int) -> list[Job]:
    """Two clusters of two teams: every job fails an hour, and the last attempts still run."""
    begin = now_s - T0 / S - HOURS * 3600
    return [
        _job(f"{cluster}/{team}/{number}", f"{cluster}-{team}-{number}", begin, cluster=cluster, team=team)
        for cluster in ("c1", "prod-a")
        for team in ("ads", "llm")
        for number in range(2)
    ]


def _job(name: str, node: str, begin: float, **meta: Any) -> Job:
    """An attempt an hour: image, compilation, steps, a stall, a save, steps; then its end, and the next."""
    job = Job(name, 64, node, meta)
    step = 1
    for number in range(RESTARTS):
        at = begin + number * 3600 + 60
        _begin(job, at)
        job.phase("image_pull", at, at + 120).phase("compile_cold", at + 120, at + 500, work_key="graph-1")
        job.tell("phase", rank=1, phase="compile_cold", start=at + 120, end=at + 560)
        if number:
            job.tell("checkpoint", rank=0, step=step - 1, ts=at + 560, kind="load")
        _steps(job, step, step + 499, at + 560, at + 1500)
        job.phase("data_stall", at + 1500, at + 1800).phase("checkpoint_save_block", at + 1800, at + 1860)
        job.saved(step + 499, at + 1860)
        _steps(job, step + 500, step + 799, at + 1860, at + 2460)
        if number % 3:
            job.tell("fault", ts=at + 2480, kind="xid", code=79)
            job.end(at + 3000, "failed", exit_code=1, error="NCCL timeout")
        else:
            job.end(
                at + 3000,
                "failed",
                exit_code=1,
                failed_node=job.node,
                error="checkpoint corrupt: size mismatch",
            )
        step += 500
    at = begin + RESTARTS * 3600 + 60
    _begin(job, at)
    job.phase("compile_cold", at, at + 300, work_key="graph-1")
    job.tell("checkpoint", rank=0, step=step - 1, ts=at + 300, kind="load")
    _steps(job, step, step + 1499, at + 300, at + 3300)
    return job


def _begin(job: Job, at: float) -> None:
    job.attempts += 1
    job.tell("attempt_start", ts=at, gpus=job.gpus, world_size=2, nodes=[job.node, f"{job.node}-b"])


def _steps(job: Job, first: int, last: int, start: float, end: float) -> None:
    for rank in (0, 1):
        job.tell("steps", rank=rank, first=first, last=last, start=start, end=end)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus; queries raise for what it does not understand."""

    client: httpx.Client

    def ask(self, path: str, **params: Any) -> Any:
        """The data of an answer."""
        told = self.client.get(f"/api/v1/{path}", params=params).json()
        assert told["status"] == "success", f"{params}: {told}"
        return told["data"]

    def now(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        return list(self.ask("query", query=expr)["result"])

    def over(self, expr: str, start_s: float, end_s: float, step_s: int) -> list[dict[str, Any]]:
        """The series of a range query."""
        return list(self.ask("query_range", query=expr, start=start_s, end=end_s, step=step_s)["result"])


@contextmanager
def prometheus(folder: Path, service: Service, now_s: int) -> Iterator[Prometheus]:
    """Prometheus after a day of scraping two replicas, the shipped rules in it.

    The counters rise evenly to what the service shows. What the rules need of their own past is theirs: the sums over
    it are asked of Prometheus, and put beside.
    """
    replicas = [f"{host}:{service.client.base_url.port}" for host in ("127.0.0.1", "localhost")]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    told = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    told["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    del told["alerting"]
    agent = f"127.0.0.1:{free_port()}"
    told["scrape_configs"][1] |= {"static_configs": [{"targets": [agent]}]}
    told["scrape_configs"][0] |= {"static_configs": [{"targets": replicas}], "scrape_timeout": "2s"}
    for group in rules["groups"]:
        group["interval"] = "1s"
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": []}))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(told))
    page = service.client.get("/metrics").text
    _import(folder, _risen(page, replicas, now_s))
    with _running(folder) as past:
        sums = list(_sums(past, rules, now_s))
    _import(folder, sums)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    with _agent(folder, str(service.client.base_url), agent), _running(folder) as found:
        for last in LAST:
            wait_for(lambda expr=last: bool(found.now(expr)))
        yield found


@contextmanager
def _agent(folder: Path, url: str, page: str) -> Iterator[None]:
    """A real agent of a node on which nothing trains."""
    command = [
        sys.executable, "-m", "ett_collector.agent.main", "--url", url, "--node", "c1-ads-0", "--metrics", page,
        "--spool-dir", folder / "spool", "--heartbeat", "0.5", "--drain", "1",
    ]  # fmt: skip
    with (folder / "agent.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment())
        try:
            yield
        finally:
            process.kill()
            process.wait()


@contextmanager
def _running(folder: Path) -> Iterator[Prometheus]:
    address = f"127.0.0.1:{free_port()}"
    command = [
        program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("a") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for(lambda: is_ready(address))
            with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
                yield Prometheus(client)
        finally:
            process.kill()  # nothing of it is needed any more
            process.wait()


def _moments(now_s: int) -> range:
    return range(now_s - HOURS * 3600, now_s, STEP_S)


def _risen(page: str, replicas: list[str], now_s: int) -> Iterator[str]:
    """The page's samples over the day, as OpenMetrics: counters from 0 to what they are, gauges as they are."""
    moments = _moments(now_s)
    for family in text_string_to_metric_families(page):
        yield f"# TYPE {family.name} unknown"
        for sample in family.samples:
            if not sample.value:
                continue  # most of the closed label sets
            for replica in replicas:
                labels = _labels(sample.labels | {"job": "fleet-ett", "instance": replica})
                for place, at in enumerate(moments):
                    part = place / (len(moments) - 1) if family.type != "gauge" else 1
                    yield f"{sample.name}{labels} {sample.value * part} {at}"


def _sums(past: Prometheus, rules: dict[str, Any], now_s: int) -> Iterator[str]:
    """The sums that the first rules record, over the day."""
    moments, exprs = _moments(now_s), {}
    totals = [group["rules"] for group in rules["groups"] if group["name"].startswith("ett-totals")]
    for rule in (rule for of_group in totals for rule in of_group):
        expr = rule["expr"]
        for name, inner in exprs.items():
            expr = expr.replace(name, f"({inner})")
        exprs[rule["record"]] = expr
        for series in past.over(expr, moments[0], moments[-1], STEP_S):
            labels = _labels(series["metric"])
            yield from (f"{rule['record']}{labels} {value} {at}" for at, value in series["values"])


def _import(folder: Path, lines: Iterator[str] | list[str]) -> None:
    text = folder / "history.txt"
    text.write_text("\n".join([*lines, "# EOF\n"]))
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
