"""Every query of every dashboard is run by the program that it is for, on a fleet's books, and finds something."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import make_url

from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.report import make_reader
from tests.grafana.boards import BOARDS, filled, panels, queries, sql
from tests.grafana.world import HOURS, Prometheus, fleet, prometheus
from tests.http.service import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.http.service import Service

READER = "grafana_reader"
TRIES = 10
QUERIES = dict(queries())
VALUES = {
    "cluster": ".*", "team": ".*", "window": "1d", "component": "checkpoint", "job": "c1/ads/0", "__range": "12h",
    "__searchFilter": "%",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    service: Service
    prometheus: Prometheus
    reader: psycopg.Connection
    now_s: int


@pytest.fixture(scope="module")
def world(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    now_s = int(time.time())
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with running(engine) as service:
        service.book(*fleet(now_s), now=now_s * 1_000_000_000)
        agent = {"node": "c1-ads-0", "incarnation": "odd", "version": "1.0"}
        service.client.post("/v1/events", json={"agent": agent, "events": [{"seq": 1, "type": "steps"}]})
        with transaction(engine) as conn:
            make_reader(conn, READER)
        url = make_url(engine.url).set(drivername="postgresql", username=READER)
        with (
            prometheus(folder, service, now_s) as found,
            psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as reader,
        ):
            yield World(service, found, reader, now_s)
        with transaction(engine) as conn:
            conn.exec_driver_sql(f"DROP OWNED BY {READER}; DROP ROLE {READER}")


def answer(world: World, query: dict[str, Any]) -> list[Any]:
    """What the query finds: rows, or series."""
    if "label" in query:  # a variable of Prometheus: the values of a label
        told = re.fullmatch(r"label_values\((.+), (\w+)\)", query["label"])
        assert told
        return list(world.prometheus.ask(f"label/{told[2]}/values", **{"match[]": filled(told[1], VALUES)}))
    if "rawSql" in query:
        text = sql(query["rawSql"], VALUES, world.now_s - HOURS * 3600, world.now_s + 60)
        return world.reader.execute(text).fetchall()
    expr = filled(query["expr"], VALUES)
    if query.get("range"):
        end = time.time()
        return world.prometheus.over(expr, end - 3600, end, 60)
    return world.prometheus.now(expr)


def at_last(found: Callable[[], Any]) -> Any:
    """What is found; where that is nothing, again: a scrape may miss its second on a busy machine."""
    for _ in range(TRIES):
        if told := found():
            return told
        time.sleep(1)
    return found()


@pytest.mark.parametrize("name", QUERIES)
def test_it_finds_something(name: str, world: World) -> None:
    query = QUERIES[name]
    assert at_last(lambda: answer(world, query))


RAW_NAME = re.compile(r"(?<![\w:])(ett_(?!agent)\w+)(\{?)")  # no recorded series, no agent's
RAW = {name: query for name, query in QUERIES.items() if RAW_NAME.search(query.get("expr", ""))}


@pytest.mark.parametrize("name", RAW)
def test_two_replicas_are_no_second_fleet(name: str, world: World) -> None:
    """The same with one of the two that are scraped; recorded series are counted once by the rules."""
    expr = filled(RAW[name]["expr"], VALUES)
    one = RAW_NAME.sub(lambda found: f'{found[1]}{{instance=~"127.*"' + ("," if found[2] else "}"), expr)
    assert one != expr
    moved_on = 4 if "_lag_" in expr else 0  # an age, which is another at each scrape

    def values(asked: str, at: float) -> dict[str, float]:
        found = world.prometheus.ask("query", query=asked, time=at)["result"]
        return {str(sorted(series["metric"].items())): float(series["value"][1]) for series in found}

    def alike() -> bool:
        at = time.time() - 2
        return bool(pytest.approx(values(one, at), rel=1e-3, abs=moved_on) == values(expr, at))

    assert at_last(alike)


@pytest.mark.parametrize("uid", BOARDS)
def test_the_service_has_the_pages(uid: str, world: World) -> None:
    paths = set()
    for panel in panels(BOARDS[uid]):
        paths |= {link["url"].removeprefix("${service}") for link in panel["links"]}
    moments = {"from": world.now_s - 3600, "to": world.now_s}
    for path in sorted(paths):
        asked = re.sub(
            r"\$\{__(from|to):date:iso\}",
            lambda found: datetime.fromtimestamp(moments[found[1]], tz=timezone.utc).strftime("%FT%T.000Z"),
            path,
        )
        asked = re.sub(r"\$\{(\w+):percentencode\}", lambda found: quote(VALUES[found[1]], safe=""), asked)
        assert "$" not in asked
        assert 200 == world.service.client.get(asked).status_code, asked


def test_the_figures_are_the_services(world: World) -> None:
    """ETT of the last day is what REST says of the settled time; a job's is what its page says."""
    told = world.service.get("/v1/fleet/ett")
    asked = {
        name.split(" ", 2)[2]: query for name, query in QUERIES.items() if name.startswith("ett-fleet: ")
    }
    (ratio,) = at_last(lambda: answer(world, asked["ETT% (A)"]))
    assert pytest.approx(told["ett_settled"], abs=0.002) == float(ratio["value"][1])
    (held,) = at_last(lambda: answer(world, asked["Held now (A)"]))
    assert 8 * 64 == float(held["value"][1])
    row = answer(world, asked["Jobs that lost most (A)"])[0]
    detail = world.service.job(row[0])
    assert pytest.approx((detail["gpu_ns"] / 3.6e12, detail["ett_gpu_weighted"])) == (row[3], row[5])


def test_a_timeline_has_no_hole(world: World) -> None:
    """Each row begins where the one before it ends: what a state timeline draws."""
    asked = next(query for name, query in QUERIES.items() if name.endswith(" Timeline (A)"))
    rows = answer(world, asked)
    assert (None, None) == rows[-1][1:]
    assert sorted(row[0] for row in rows) == [row[0] for row in rows]
    assert "productive" in {row[1] for row in rows}
