"""From a failure to somebody's telephone, stage by stage: a real service, Prometheus and Alertmanager.

Two jobs train in clusters of their own. At one moment one hangs in a step, the other waits for data, and an agent sends
events that are refused. Each stage is looked for a few times a second. What a stage took is split: until the earliest
moment that settings allow it was policy, then a wait for the next scrape or evaluation, the rest is what programs need.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from tests.bench.monitors import alertmanager, prometheus
from tests.bench.serving import serving
from tests.prometheus.running import answered, ask, webhook

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GPUS = 4096
TELL_S, LOOK_S, PATIENCE_S = 0.5, 0.2, 420
ACKNOWLEDGED, BOOKED, SHOWN, SCRAPED = "acknowledged", "in the job's books (REST)", "on /metrics", "scraped"
MET, PENDING, FIRING, RECEIVED = (
    "scraped figures meet the condition",
    "alert pending",
    "alert firing",
    "message received",
)
STAGES = (ACKNOWLEDGED, BOOKED, SHOWN, SCRAPED, MET, PENDING, FIRING, RECEIVED)
POLICY, WAIT, PROGRAMS = "policy", "wait for a scrape or an evaluation", "programs"


@dataclass(frozen=True, slots=True)
class Setting:
    """How everything is set. `files`: what Prometheus and Alertmanager read but for addresses; `train_s`: for how long
    the jobs train at least before they fail."""

    title: str
    hang_s: int
    train_s: int
    rules: str
    prometheus: dict[str, Any]
    alertmanager: dict[str, Any]
    group_wait_s: int


@dataclass(slots=True)
class Failure:
    """What goes wrong, which alert tells it, and how each stage is seen.

    `series`: the sample of /metrics that rises; `condition`: the alert's, on what was scraped; `known_s`: how long it
    passes for none; `for_s`: the alert's `for`, which is not waited out unless `patient`.
    """

    alert: str
    labels: dict[str, str]
    job: str | None
    heading: str
    series: str
    condition: str
    known_s: float = 0
    for_s: int = 0
    patient: bool = True
    at: float = 0.0
    reached: dict[str, float] = field(default_factory=dict)

    def took(self, group_wait_s: float) -> dict[str, float]:
        """Seconds by whose they are: policy, waits for scrapes and evaluations, programs."""
        out = {POLICY: 0.0, WAIT: 0.0, PROGRAMS: 0.0}
        before = 0.0
        for stage, moment in self.reached.items():
            gap = moment - before
            allowed = 0.0
            if stage in (BOOKED, SHOWN):
                allowed = min(max(self.known_s - before, 0.0), gap)
            elif stage == MET:
                allowed = gap
            elif stage == FIRING:
                allowed = min(self.for_s, gap)
            elif stage == RECEIVED:
                allowed = min(group_wait_s, gap)
            out[POLICY] += allowed
            out[WAIT if stage in (SCRAPED, PENDING, FIRING) else PROGRAMS] += gap - allowed
            before = moment
        return out


class Teller(threading.Thread):
    """The agents: what both jobs do, twice a second; from `fail` on they do it no more."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.failing, self.ended = threading.Event(), threading.Event()
        self.failed_at = self.acknowledged_at = 0.0

    def run(self) -> None:
        seq, step, last = count(), 0, time.time_ns()
        whose = {job: {"job": job, "attempt": "first", "rank": 0} for job in ("hangs", "waits")}
        beating = [{"job": job, "attempt": "first", "ranks": [0]} for job in whose]
        told: list[dict[str, Any]] = [
            {"type": "job", "job": job, "cluster": job, "team": "t"} for job in whose
        ]
        for who in whose.values():
            start = {"ts": last, "gpus": GPUS, "world_size": 1, "nodes": ["n1"]}
            told.append({"type": "attempt_start", "job": who["job"], "attempt": who["attempt"], **start})
        while not self.ended.wait(TELL_S):
            fails, now = self.failing.is_set(), time.time_ns()
            span = {"start": last, "end": now}
            for job, who in whose.items():
                if not fails:
                    told.append({"type": "steps", "first": step + 1, "last": step + 5, **who, **span})
                elif job == "waits":
                    told.append({"type": "phase", "phase": "data_stall", **who, **span})
            told.append({"type": "heartbeat", "ts": now, "jobs": beating})
            if fails and not self.failed_at:  # as an agent tells a step that takes long
                step_open = {"phase": "step_new_data", "span": "1", "step": step, "start": last}
                told.append({"type": "phase_open", **whose["hangs"], **step_open})
            if fails:
                told.append({"type": "steps", "job": "waits", "attempt": "first"})  # of no step: refused
            events = [{"seq": next(seq), **one} for one in told]
            agent = {"node": "n1", "incarnation": "only", "version": "1.0"}
            body = json.dumps({"agent": agent, "events": events}).encode()
            told_in = Request(f"{self.url}/v1/events", body, {"Content-Type": "application/json"})
            refused = json.loads(_read(told_in))["quarantined"]
            assert len(refused) == int(fails), refused
            if fails and not self.failed_at:
                self.acknowledged_at, self.failed_at = time.time(), last / 1e9
            step, told, last = step + 5, [], now


def measured(database_url: str, folder: Path, setting: Setting, failures: list[Failure]) -> None:
    """Start everything, let the jobs train, fail, and note when each stage of each failure was reached."""
    folder.mkdir()
    (folder / "rules.yaml").write_text(setting.rules)
    with ExitStack() as stack:
        hook, alerts = stack.enter_context(webhook())
        manager = setting.alertmanager | {
            "receivers": [
                {"name": one["name"], "webhook_configs": [{"url": hook}]}
                for one in setting.alertmanager["receivers"]
            ]
        }
        service = stack.enter_context(serving(database_url, ETT_HANG_S=str(setting.hang_s)))
        listens = stack.enter_context(alertmanager(folder, manager)).address
        scraped = {"job_name": "fleet-ett", "static_configs": [{"targets": [f"127.0.0.1:{service.port}"]}]}
        configured = setting.prometheus | {
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [listens]}]}]},
            "scrape_configs": [scraped],
        }
        monitor = stack.enter_context(prometheus(folder, configured))
        url = f"http://127.0.0.1:{service.port}"
        teller = Teller(url)
        stack.callback(lambda: (teller.ended.set(), teller.join()))
        teller.start()
        held = 'sum(cluster_team:ett_held_gpu_seconds:total{cluster="waits"})'
        _wait(lambda: (ask(monitor.address, held) or 0) >= GPUS * setting.train_s)
        teller.failing.set()
        _wait(lambda: teller.failed_at > 0)
        _follow(failures, teller, Looks(url, monitor.address, alerts))


class Looks:
    """One look at each stage of a failure."""

    def __init__(self, url: str, monitor: str, alerts: Queue[dict[str, Any]]) -> None:
        self.url = url
        self.monitor = monitor
        self.alerts = alerts
        self.received: list[dict[str, str]] = []

    def sees(self, one: Failure, stage: str) -> bool:
        """Whether the failure has reached the stage."""
        if stage == BOOKED:
            return (
                one.job is None
                or json.loads(_read(f"{self.url}/v1/jobs/{one.job}"))["headings"][one.heading] > 0
            )
        if stage == SHOWN:
            rows = [line.rpartition(" ") for line in _read(f"{self.url}/metrics").splitlines()]
            return any(float(value) > 0 for name, _, value in rows if name == one.series)
        if stage == SCRAPED:
            return (ask(self.monitor, f"max({one.series})") or 0) > 0
        if stage == MET:
            return ask(self.monitor, f"max({one.condition})") is not None
        if stage == RECEIVED:
            while True:
                try:
                    self.received.append(self.alerts.get_nowait()["labels"])
                except Empty:
                    return any(_fits(one, labels) for labels in self.received)
        active = answered(self.monitor, "alerts")["alerts"]
        states = {alert["state"] for alert in active if _fits(one, alert["labels"])}
        return bool(states & ({"firing"} if stage == FIRING else {"pending", "firing"}))


def _read(asked: str | Request) -> str:
    with urlopen(asked, timeout=30) as answer:
        return str(answer.read().decode())


def _fits(one: Failure, labels: dict[str, str]) -> bool:
    return ({"alertname": one.alert} | one.labels).items() <= labels.items()


def _follow(failures: list[Failure], teller: Teller, looks: Looks) -> None:
    begin = time.time()
    for one in failures:
        one.at = teller.failed_at
        one.reached[ACKNOWLEDGED] = teller.acknowledged_at - one.at
    left = list(failures)
    while left:
        for one in list(left):
            stages = STAGES if one.patient else STAGES[:-2]
            while len(one.reached) < len(stages) and looks.sees(one, stages[len(one.reached)]):
                stage = stages[len(one.reached)]
                one.reached[stage] = time.time() - one.at
                print(f"... {one.reached[stage]:6.1f} s {one.alert}: {stage}", file=sys.stderr)
            if len(one.reached) == len(stages):
                left.remove(one)
        assert time.time() - begin < PATIENCE_S, [(one.alert, one.reached) for one in left]
        time.sleep(LOOK_S)


def _wait(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until
        time.sleep(LOOK_S)
