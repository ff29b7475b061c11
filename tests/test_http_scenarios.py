"""Each scenario folder through the whole service: HTTP, Postgres, the worker, REST; the same numbers.

The events go in as agents send them, bad ones among them; the books are asked for as of the scenario's
time. Once everything at a stroke, once in small deliveries with books made in between.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from sqlalchemy import select

from fleet_ett.core.policy import Policy
from fleet_ett.http.body import parse
from fleet_ett.ingest import decode_batch, take_in
from fleet_ett.postgres.tables import attempts, held_up, incidents, jobs, ledger, segments, work
from fleet_ett.replay import document, replay_wire
from fleet_ett.replay.json_lines import parse_line
from fleet_ett.replay.wire_file import WireFile
from fleet_ett.worker import book_due_jobs, rebuild
from tests.http.service import Service, running
from tests.scenarios import Scenario, all_scenarios
from tests.scenarios.compare import differences, restricted, unbalanced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine

SCENARIOS = all_scenarios()
MINUTE = 60 * 10**9
# When books were made, where they may go on, and what they then turned out to be late for, is of the path.
WHEN = ("late_ns", "not_before_ns", "as_of_ns", "resume")
DERIVED = (jobs, attempts, ledger, segments, held_up, work, incidents)
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)


@pytest.fixture(scope="module")
def started(engine: Engine) -> Iterator[Service]:
    """A running service."""
    with running(engine) as found:
        yield found


@pytest.fixture
def service(started: Service) -> Service:
    """A running service that has never heard of anything."""
    started.forget()
    return started


@dataclass(frozen=True, slots=True)
class Delivery:
    """Lines that one agent sends in one body, by their number in the file."""

    node: str
    incarnation: str
    offset: int
    lines: tuple[tuple[int, str], ...]

    def body(self) -> str:
        """The body as text: what no JSON writer would write goes out as it stands in the file."""
        agent = json.dumps({"node": self.node, "incarnation": self.incarnation, "version": "1.0"})
        events = ",".join(line for _, line in self.lines)
        return f'{{"agent": {agent}, "clock_offset_ns": {self.offset}, "events": [{events}]}}'


def deliveries(lines: Sequence[str], size: int) -> Iterator[Delivery]:
    """The file's lines in order as bodies of one agent each, at most `size` events long."""
    waiting: list[tuple[int, str]] = []
    speaker = None
    for number, line in enumerate(lines, start=1):
        told = speaks(line)
        if told is None:
            continue
        if waiting and (told != speaker or len(waiting) == size):
            yield Delivery(*speaker, tuple(waiting))
            waiting = []
        speaker = told
        waiting.append((number, line))
    if waiting:
        yield Delivery(*speaker, tuple(waiting))


def speaks(line: str) -> tuple[str, str, int] | None:
    """Who sends a line, and its clock's offset; None for a line that no agent could send."""
    try:
        raw = parse_line(line)
    except ValueError:
        return None
    if not isinstance(raw, dict):
        return "n1", "none", 0
    node, incarnation, offset = raw.get("node"), raw.get("incarnation"), raw.get("clock_offset_ns")
    fits = all(
        isinstance(one, str) and one and "\0" not in one and one.isascii() for one in (node, incarnation)
    )
    if not fits or not isinstance(offset, int | None):
        return None
    return node, incarnation, offset or 0


def send(service: Service, delivery: Delivery, now: int) -> set[int]:
    """Post one body; the numbers of the lines that were refused."""
    body = delivery.body().encode(errors="surrogatepass")
    if now > time.time_ns():  # a story of a later year: HTTP would refuse what lies ahead of the clock
        told = take_in(decode_batch(parse(body, "json"), now=now), service.app.state.store, now=now)
    else:
        answer = service.client.post("/v1/events", content=body)
        assert 200 == answer.status_code, answer.text
        told = answer.json()
    refused = {delivery.lines[one["index"]][0] for one in told["quarantined"]}
    assert len(delivery.lines) == told["accepted"] + told["duplicates"] + len(refused)
    return refused


def as_of(scenario: Scenario) -> int:
    """The scenario's time: its own, or the newest stamp that is accepted."""
    events = WireFile(scenario.lines).events()
    stamps = [(e.end or e.start) - e.clock_offset_ns for e in events if e.start is not None]
    return scenario.as_of if scenario.as_of is not None else max(stamps, default=0)


def book(service: Service, now: int) -> None:
    """Make the books as of `now`."""
    while book_due_jobs(service.engine, Policy(), clock=lambda: now):
        pass


def answers(service: Service) -> dict[str, Any]:
    """What REST says, in the words of `fleet-ett replay --json`."""
    jobs = {row["job"]: job_answer(service, row["job"]) for row in service.pages("/v1/jobs", limit=1000)}
    fleet = service.get("/v1/fleet/ett")
    counts = {
        sample.split('"')[1]: int(float(sample.split()[-1]))
        for sample in service.ask("/metrics").text.splitlines()
        if sample.startswith("ett_events_total")
    }
    return {
        "jobs": jobs,
        "fleet": {name: fleet[name] for name in ("ett", "gpu_ns", "productive_gpu_ns")},
        "duplicates": counts["duplicate"],
        "conflicts": counts["conflict"],
    }


def job_answer(service: Service, job: str) -> dict[str, Any]:
    """One job from its detail and its ledger."""
    path = f"/v1/jobs/{quote(job, safe='')}"
    detail, ledger = service.get(path), service.get(f"{path}/ledger")
    assert detail["error"] is None
    for name in ("wall_ns", "gpu_ns", "ett", "headings", "gpu_headings", "phases", "components"):
        assert detail[name] == ledger[name], name
    incidents = [{**one, "induced_ns": one["wall_ns"]} for one in reversed(detail["incidents"])]
    told = ("ett", "wall_ns", "gpu_ns", "headings", "gpu_headings", "phases", "components")
    goodput = service.get(f"{path}/goodput")
    return {
        "goodput": {name: value for name, value in goodput.items() if name.endswith("_s")},
        **{name: ledger[name] for name in (*told, "provisional_ns", "live")},
        **{
            name: detail[name]
            for name in ("overlapped", "steps", "held_up_by", "failures", "metrics", "flags")
        },
        "l2": {bucket: amount["wall_ns"] for bucket, amount in detail["l2"].items()},
        "attempts": detail["num_attempts"],
        "incidents": sorted(incidents, key=lambda one: one["attempt_index"]),
        "late_ns": detail["data_quality"]["late_ns"],
    }


def expected_of(scenario: Scenario) -> dict[str, Any]:
    """What the scenario expects, as far as the service answers it."""
    return {name: value for name, value in scenario.expected.items() if name != "quarantined"}


@each_scenario
def test_the_service_gives_the_same_numbers(scenario: Scenario, service: Service) -> None:
    """All events in few bodies, booked once: what is expected, and all that the offline reader says."""
    now = as_of(scenario)
    refused: set[int] = set()
    sent: set[int] = set()
    for delivery in deliveries(scenario.lines, 1000):
        refused |= send(service, delivery, now)
        sent |= {number for number, _ in delivery.lines}
    offline = replay_wire(scenario.lines, as_of=now)
    assert {one.line for one in offline.quarantined} & sent == refused
    book(service, now)
    actual = answers(service)
    assert not unbalanced(actual)
    assert not differences(expected_of(scenario), actual)
    everything = document(offline)
    for job in everything["jobs"].values():
        del job["metrics"]["l1"]  # has a place of its own in the detail
    del everything["quarantined"]
    assert everything == restricted(actual, everything)


@each_scenario
def test_small_deliveries_and_books_in_between_change_nothing(scenario: Scenario, service: Service) -> None:
    """Incremental books are those of a rebuild from the raw events, to the last column."""
    now = as_of(scenario)
    size = len(scenario.lines) // 5 + 1
    several = list(deliveries(scenario.lines, size))
    for left, delivery in zip(range(len(several), 0, -1), several, strict=True):
        send(service, delivery, now)
        book(service, now - left * MINUTE)
    book(service, now)
    step_by_step = stored(service.engine)
    rebuild(service.engine, Policy(), as_of=now)
    at_a_stroke = stored(service.engine)
    changed = {
        name for name in {*step_by_step, *at_a_stroke} if step_by_step.get(name) != at_a_stroke.get(name)
    }
    assert {} == {name: (step_by_step.get(name), at_a_stroke.get(name)) for name in changed}


def stored(engine: Engine) -> dict[str, Any]:
    """All that is derived, but how often and when it was, by table, key and column."""
    out: dict[str, Any] = {}
    with engine.connect() as conn:
        for table in DERIVED:
            for row in conn.execute(select(table)).mappings():
                key = "/".join(str(row[column.name]) for column in table.primary_key)
                summary = dict(row.get("summary") or {})
                summary.pop("as_of", None)
                told = {**row, "summary": summary}
                out |= {f"{table.name}/{key}/{name}": one for name, one in told.items() if name not in WHEN}
    return out
