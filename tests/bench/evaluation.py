"""How long the shipped rules take to evaluate on a month of history, by the size of the fleet.

The page of a real service with as many clusters and teams gives the names; stand-ins for its replicas then show that
page with values that rise. A real Prometheus scrapes them as often as `prometheus.yml` says, on blocks that hold what
its rules have recorded so far, and evaluates each group more often than it is shipped.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import numpy as np
import yaml

from fleet_ett.postgres import rollups
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.rules.durations import duration, seconds
from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import render
from tests.bench.attribution import SECOND, Job, booked, database
from tests.bench.history import (
    SPARE_S,
    Activity,
    Series,
    Stretch,
    reaches,
    replica,
    scraped,
    with_labels,
    write_blocks,
)
from tests.bench.monitors import prometheus
from tests.bench.serving import serving
from tests.prometheus.running import results

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.postgres.server import EmbeddedServer

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
SHIPPED = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
SCRAPE = SHIPPED["global"]["scrape_interval"]
INTERVALS = {
    group["name"]: seconds(group["interval"], group["name"])
    for group in yaml.safe_load((DEPLOY / "rules.yaml").read_text())["groups"]
}
DAYS, TEAMS = 30, 5
_OF_GROUP = "prometheus_rule_group_{}"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Seconds of each evaluation by group; samples of history; series and memory of Prometheus while it did so."""

    fleet: str
    took: dict[str, list[float]]
    samples: int
    series: int
    mib: float


def page_of_a_fleet(server: EmbeddedServer, clusters: int) -> str:
    """`/metrics` of a real service whose clusters have TEAMS teams each, with a job that failed once and is live."""
    now = time.time_ns() // SECOND * SECOND
    with database(server, f"clusters_{clusters}") as engine:
        store = PostgresStore(engine)
        for number in range(clusters * TEAMS):
            job = Job(f"job-{number:05}", now - 1800 * SECOND, ranks=2)
            names = {"cluster": f"cluster-{number // TEAMS:02}", "team": f"team-{number % TEAMS}"}
            job.events.append({"seq": 0, "type": "job", "job": job.name, **names})
            job.begin()
            job.train(1, 300)
            job.fail(5)
            job.begin()
            job.train(1, (now - job.at) // SECOND)
            job.hand_in(store)
        booked(engine, now)
        rollups.fold(engine)
        url = engine.url.render_as_string(hide_password=False)
    with serving(url, attribution=0) as service:
        return str(urlopen(f"http://127.0.0.1:{service.port}/metrics").read().decode())


def configuration(ports: list[int], every_s: int, scrape: str) -> dict[str, Any]:
    """Prometheus' configuration: replicas, rules, itself."""
    job = SHIPPED["scrape_configs"][0]["job_name"]
    return {
        "global": {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": f"{every_s}s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
        ],
    }


def write_rules(folder: Path, every_s: int) -> dict[str, Any]:
    """The shipped rules, but each group is evaluated every so many seconds; returns them."""
    told = yaml.safe_load((DEPLOY / "objectives.yaml").read_text())
    told |= {"evaluation_interval": f"{every_s}s", "slow_evaluation_interval": f"{every_s}s"}
    text = render(read_objectives(yaml.safe_dump(told)))
    (folder / "rules.yaml").write_text(text)
    rules: dict[str, Any] = yaml.safe_load(text)
    return rules


def recorded(folder: Path, ports: list[int]) -> list[Series]:
    """What the rules make of these replicas, per second of activity: asked from a Prometheus that has just begun."""
    write_rules(folder, 1)
    with prometheus(folder, configuration(ports, 1, "1s")) as monitor:
        time.sleep(15)
        found = results(monitor.address, '{__name__=~".+:.+"}')
    shutil.rmtree(folder / "data")
    out = []
    for labels, value in found:
        name = labels.pop("__name__")
        told = ",".join(f'{key}="{text}"' for key, text in labels.items())
        out.append(Series(name, f"{{{told}}}", value, name.endswith(":total")))
    return out


def stretches(folder: Path, page: list[Series], ports: list[int], factor: float) -> Iterator[Stretch]:
    """All that the rules look back at, as far as they do; `factor`: activity when `recorded` asked."""
    rules, now = write_rules(folder, 1), int(time.time())
    steps = {
        rule["record"]: INTERVALS[group["name"]]
        for group in rules["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    reach = reaches(rules)
    by_reach: dict[tuple[int, int], list[Series]] = {}
    for one in recorded(folder, ports):
        if one.name in reach:
            amount = one.amount / factor if one.rises else one.amount
            key = (min(reach[one.name] + SPARE_S, DAYS * 86_400), steps[one.name])
            by_reach.setdefault(key, []).append(Series(one.name, one.labels, amount, one.rises))
    job = SHIPPED["scrape_configs"][0]["job_name"]
    shown = [one for one in page if one.name in reach]
    key = (max(reach[one.name] for one in shown) + SPARE_S, seconds(SCRAPE, "scrape_interval"))
    for port in ports:
        by_reach.setdefault(key, []).extend(with_labels(shown, job=job, instance=f"127.0.0.1:{port}"))
    for (length, step), series in by_reach.items():
        yield Stretch(series, now - length, step)


def evaluated(page: str, clusters: int, replicas: tuple[int, ...], folder: Path) -> Iterator[Evaluated]:
    """Write the history, and run Prometheus on it while it scrapes so many replicas, one number after the other.

    Groups are evaluated so seldom that they do not hold up each other: more often with fewer clusters.
    """
    folder.mkdir()
    begin, now = time.perf_counter(), int(time.time())
    series, activity = scraped(page), Activity(now - (DAYS + 1) * 86_400, now)
    every_s = 2 * clusters
    with ExitStack() as stack:
        ports = [stack.enter_context(replica(series, activity)) for _ in range(max(replicas))]
        factor = float(activity.at(np.array([now + 15]))[0])
        parts = list(stretches(folder, series, ports[:1], factor))
        write_rules(folder, every_s)
        samples = write_blocks(parts, activity, folder / "data", int(time.time()))
        took_s = time.perf_counter() - begin
        print(f"... {clusters} clusters: {samples:,} samples in blocks after {took_s:.0f} s", file=sys.stderr)
        for count in replicas:
            with prometheus(folder, configuration(ports[:count], every_s, SCRAPE)) as monitor:
                time.sleep(2 * seconds(SCRAPE, "scrape_interval"))
                took = watched(monitor.address, 2.5 * every_s)
                own = _own(monitor.address)
            yield Evaluated(
                f"{clusters} clusters, {count} replica{'s' if count > 1 else ''}",
                took,
                samples,
                int(own["prometheus_tsdb_head_series"]),
                own["process_resident_memory_bytes"] / 2**20,
            )


def watched(address: str, watch_s: float) -> dict[str, list[float]]:
    """Seconds of every evaluation of each group meanwhile, from Prometheus' own page."""
    seen: dict[tuple[str, float], float] = {}
    until = time.monotonic() + watch_s
    while time.monotonic() < until:
        own = _own(address)
        for name, value in own.items():
            head, _, group = name.partition(";")
            if head.startswith(_OF_GROUP.format("last_duration_seconds")):
                stamp = own[name.replace("last_duration_seconds", "last_evaluation_timestamp_seconds")]
                seen[group.rstrip('"}'), stamp] = value
        time.sleep(1)
    out: dict[str, list[float]] = {name: [] for name in INTERVALS}
    for (group, stamp), value in sorted(seen.items()):
        if stamp > 0:
            out[group].append(value)
    return out


def _own(address: str) -> dict[str, float]:
    text = urlopen(f"http://{address}/metrics").read().decode()
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def report(found: list[Evaluated]) -> bool:
    """Print the table; whether every evaluation took at most a tenth of its group's interval."""
    print(
        f"\nrules on {duration(DAYS * 86_400)} of history: median ms of an evaluation (and what it is of the interval)"
    )
    print(f"{'group':34}{'every':>6}" + "".join(f"{one.fleet:>26}" for one in found))
    for name, interval in INTERVALS.items():
        cells = [_median(one.took[name]) for one in found]
        told = "".join(f"{1000 * cell:17.1f} {cell / interval:7.2%}" for cell in cells)
        print(f"{name:34}{duration(interval):>6}{told}")
    share = [sum(_median(one.took[name]) / every for name, every in INTERVALS.items()) for one in found]
    worst = [max(max(one.took[name]) / every for name, every in INTERVALS.items()) for one in found]
    print(f"{'all, of one core':40}" + "".join(f"{one:25.2%} " for one in share))
    print(
        f"{'slowest of all, goal <= 10%':40}"
        + "".join(f"{one:25.2%}{' ' if one <= 0.1 else '!'}" for one in worst)
    )
    print(
        f"{'evaluations of a group':40}" + "".join(f"{min(map(len, one.took.values())):25} " for one in found)
    )
    for title, cells in (
        ("samples of history", [f"{one.samples:,}" for one in found]),
        ("series in memory", [f"{one.series:,}" for one in found]),
        ("Prometheus' memory, MiB", [f"{one.mib:,.0f}" for one in found]),
    ):
        print(f"{title:40}" + "".join(f"{cell:>25} " for cell in cells))
    return all(one <= 0.1 for one in worst)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
