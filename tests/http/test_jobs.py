"""Jobs: the list, the detail, the ledger and the timeline."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from fleet_ett.core.taxonomy import HEADINGS, L2_BUCKETS
from tests.http.service import CSV
from tests.http.story import HOUR, T0, Job, S, rollback

if TYPE_CHECKING:
    from tests.http.service import Service

KEY = "prod-a/8812/1772452800"
AWKWARD = (
    KEY,
    "a/ledger",
    "a",
    "a/timeline/ledger",
    "100% /real?#&=+",
    'x"} 1\nett_fleet_percent{cluster="c1"} 100 #',
    "=cmd|' /C calc'!A0",
    "\U0001f30b \u2603",
    "../../etc/passwd",
    "%2F",
)


@pytest.fixture(scope="module", autouse=True)
def books(service: Service) -> None:
    """A job with a rollback, and one of each awkward key."""
    service.book(rollback(KEY, gpus=16, cluster="c1", team="ads", model="dlrm", name="DLRM 7"))
    for key in AWKWARD[1:]:
        job = Job(key, meta={"cluster": "keys"}).begin(0).phase("compile_cold", 0, 50)
        service.book(job.steps(1, 10, 50, 100).end(100))
    service.book(Job("silent", 4, "n4", {"cluster": "live"}).begin(0), now=T0 + HOUR)  # hardware, not a word
    service.book(Job("waiting").begin(0), now=T0)  # hardware since this very moment


def test_a_job_in_full(service: Service) -> None:
    """Sub-metrics, attempts, incidents, both levels of the framework, data quality."""
    job = service.job(KEY)
    assert (KEY, "DLRM 7", "c1", "ads", "dlrm") == tuple(
        job[n] for n in ("job", "name", "cluster", "team", "model")
    )
    assert (T0, T0 + 7200 * S, False, None) == tuple(job[n] for n in ("start", "end", "live", "error"))
    assert 6000 / 7200 == job["ett"]
    assert 6000 / 7100 == job["ett_gpu_weighted"]
    assert {"productive": 1500, "replayed": 100} == job["steps"]
    assert {"infra": 1, "user": 0, "planned": 0, "unknown": 0} == job["failures"]
    metrics = job["metrics"]
    assert 100 * S == metrics["time_to_start_ns"]
    assert [200 * S] == metrics["time_to_recover_ns"]
    assert [600 * S] == metrics["catch_up_ns"]
    assert [100 * S] == metrics["detection_ns"]
    assert 100 == metrics["replayed_steps"]
    assert 400 * S * 16 == metrics["replay_gpu_ns"]
    assert 7100 * S == metrics["mean_time_to_failure_ns"]
    assert 1000 * 86_400 / 7100 == pytest.approx(metrics["failures_per_1000_node_days"])
    assert 100 / 7200 == metrics["checkpoint_blocking_share"]
    assert list(L2_BUCKETS) == sorted(job["l2"], key=L2_BUCKETS.index)
    assert 7200 * S == sum(bucket["wall_ns"] for bucket in job["l2"].values())
    assert job["l1"]["ett"] - job["ett"] == pytest.approx(job["l1"]["residual"])
    quality = job["data_quality"]
    assert (100 * S, 100 / 7200, True) == tuple(
        quality[n] for n in ("unknown_ns", "unknown_share", "warning")
    )
    assert ["unknown_share"] == [flag["flag"] for flag in job["flags"]]


def test_attempts_of_a_job(service: Service) -> None:
    """In order, each with its own books, why it ended, and on what it ran."""
    first, second = service.job(KEY)["attempts"]
    assert (0, "a0", "failed", 16, ["n1"], 1) == tuple(
        first[n] for n in ("index", "attempt", "outcome", "gpus", "nodes", "node_count")
    )
    assert ("gpu_off_bus", "infra", "hw_fleet") == tuple(
        first["failure"][n] for n in ("cause", "kind", "component")
    )
    assert (900, 1000) == (first["durable_step"], first["last_step"])
    assert (1, "completed", 900, 901, 100, None) == tuple(
        second[n] for n in ("index", "outcome", "loaded_step", "first_step", "steps_replayed", "failure")
    )
    assert 7200 * S == first["wall_ns"] + second["wall_ns"]


def test_the_incident_of_a_job(service: Service) -> None:
    """All that it cost; the same row as in /v1/incidents."""
    (incident,) = service.job(KEY)["incidents"]
    assert [incident] == service.get("/v1/incidents", job=KEY)["items"]
    costs = {
        "stall_ns": 100 * S,
        "gap_ns": 100 * S,
        "restart_ns": 100 * S,
        "replay_ns": 400 * S,
        "wall_ns": 700 * S,
    }
    assert costs == {name: incident[name] for name in costs}
    assert ("gpu_off_bus", "failed", 900, 100) == tuple(
        incident[n] for n in ("cause", "outcome", "rolled_back_to", "replayed_steps")
    )
    assert 600 * S * 16 == incident["gpu_ns"]
    assert ["xid 79", "NCCL timeout"] == [one["text"] for one in incident["evidence"]]


def test_the_ledger_of_a_job(service: Service) -> None:
    """Every nanosecond under one heading; the words of `fleet-ett replay`."""
    ledger = service.job(KEY, "/ledger")
    assert 7200 * S == ledger["wall_ns"] == sum(ledger["headings"].values())
    assert ledger["gpu_ns"] == sum(ledger["gpu_headings"].values())
    assert list(HEADINGS) == list(ledger["headings"])
    assert (6000 * S, 400 * S, 100 * S) == tuple(
        ledger["headings"][n] for n in ("productive", "replay", "gap")
    )
    assert 200 * S == ledger["phases"]["compile_cold"]
    assert {"direct_ns": 0, "direct_gpu_ns": 0, "induced_ns": 700 * S, "induced_gpu_ns": 9600 * S} == ledger[
        "components"
    ]["hw_fleet"]
    assert (0, 7200 * S) == (ledger["provisional_ns"], ledger["settled_ns"])
    assert 6000 / 7200 == ledger["ett"] == ledger["ett_settled"]
    assert {row["heading"]: row["wall_ns"] for row in ledger["items"]} == {
        name: wall for name, wall in ledger["headings"].items() if wall
    }


@pytest.mark.parametrize(
    "by", ["attempt", "phase", "component", "heading", "repeated", "hour", "day", "attempt,phase,component"]
)
def test_the_ledger_in_groups(service: Service, by: str) -> None:
    """However it is cut, it adds up to the same."""
    ledger = service.job(KEY, "/ledger", by=by)
    assert 7200 * S == sum(row["wall_ns"] for row in ledger["items"])
    assert by.split(",") == ledger["by"]
    assert set(by.split(",")) == set(ledger["items"][0]) & {*LEDGER_GROUPS}


LEDGER_GROUPS = ("attempt", "heading", "phase", "component", "repeated", "hour", "day")


def test_the_ledger_in_windows_and_parts(service: Service) -> None:
    """A window cuts exactly; a filter narrows what is added up."""
    cut = service.job(KEY, "/ledger", from_=T0 + 4050 * S, to=T0 + 4450 * S)
    booked = {name: wall for name, wall in cut["headings"].items() if wall}
    assert {
        "productive": 50 * S,
        "unknown": 100 * S,
        "gap": 100 * S,
        "startup": 100 * S,
        "replay": 50 * S,
    } == booked
    part = service.job(KEY, "/ledger", component="compiler", by="attempt")
    assert [("a0", 100 * S), ("a1", 100 * S)] == [(row["attempt"], row["wall_ns"]) for row in part["items"]]
    assert 0 == part["ett"]


def test_the_timeline_of_a_job(service: Service) -> None:
    """Segments in order without a hole, clipped to the window, with who held the job up."""
    segments = service.pages(f"/v1/jobs/{quote(KEY, safe='')}/timeline", limit=2)
    assert [T0, *(one["end"] for one in segments)] == [*(one["start"] for one in segments), T0 + 7200 * S]
    assert ("startup", "compile_cold", "compiler", "a0", "n1", 0, 16, False, True) == tuple(
        segments[0][n]
        for n in ("heading", "phase", "component", "attempt", "node", "rank", "gpus", "repeated", "settled")
    )
    cut = service.job(KEY, "/timeline", from_=T0 + 50 * S, to=T0 + 60 * S)["items"]
    assert [(T0 + 50 * S, T0 + 60 * S)] == [(one["start"], one["end"]) for one in cut]
    only = service.job(KEY, "/timeline", phase="compile_cold")["items"]
    assert [False, True] == [one["repeated"] for one in only]


@pytest.mark.parametrize("key", AWKWARD)
def test_any_key_reads_back_unchanged(service: Service, key: str) -> None:
    """B76: slashes, quotes, newlines, percent signs, and keys that look like our own sub-paths."""
    assert key == service.job(key)["job"]
    assert key == service.job(key, "/ledger")["job"]
    assert {key} == {row["job"] for row in service.get("/v1/jobs", job=key)["items"]}
    assert service.job(key, "/timeline")["items"]


def test_slashes_of_a_key_may_stay_as_they_are(service: Service) -> None:
    """The last plain segment decides: `/ledger` after a key is its ledger."""
    assert KEY == service.get(f"/v1/jobs/{KEY}")["job"]
    assert 7200 * S == service.get(f"/v1/jobs/{KEY}/ledger")["wall_ns"]
    assert "a" == service.get("/v1/jobs/a/ledger")["job"]
    assert "a/ledger" == service.get("/v1/jobs/a%2Fledger")["job"]


@pytest.mark.parametrize("part", ["", "/ledger", "/timeline"])
@pytest.mark.parametrize("key", ["nobody", "a%00b", "%FF%FE", "a/", "\U0001f30c"])
def test_a_job_that_nobody_named_is_not_found(service: Service, key: str, part: str) -> None:
    """A problem, also for keys that no database could hold."""
    answer = service.client.get(f"/v1/jobs/{key}{part}")
    assert 404 == answer.status_code
    assert "not_found" == answer.json()["code"]


def test_hardware_without_a_word_has_ett_0_and_is_listed(service: Service) -> None:
    """B23: the most wasteful allocations are not the invisible ones."""
    (row,) = service.get("/v1/jobs", job="silent")["items"]
    assert (0.0, HOUR, True, None) == tuple(row[n] for n in ("ett", "wall_ns", "live", "end"))
    assert 1.0 == row["unknown_share"]


def test_a_job_without_time_has_no_ratio(service: Service) -> None:
    """It is listed all the same."""
    (row,) = service.get("/v1/jobs", job="waiting")["items"]
    assert (None, 0) == (row["ett"], row["wall_ns"])


def test_settled_and_provisional_are_told_apart(service: Service) -> None:
    """A live job's last minutes may still change."""
    ledger = service.job("silent", "/ledger")
    assert ledger["wall_ns"] == ledger["settled_ns"] + ledger["provisional_ns"]
    assert ledger["provisional_ns"] > 0
    assert {True, False} == {one["settled"] for one in service.job("silent", "/timeline")["items"]}


def test_pages_are_stable_while_jobs_arrive(service: Service) -> None:
    """A job that comes between two pages is neither skipped nor makes another appear twice."""
    first = service.get("/v1/jobs", limit=3, cluster="keys")
    service.book(Job("arrived later", meta={"cluster": "keys"}).begin(0).end(10))
    rows, cursor = first["items"], first["next"]
    while cursor:
        page = service.get("/v1/jobs", limit=3, cluster="keys", cursor=cursor)
        rows, cursor = rows + page["items"], page["next"]
    keys = [row["job"] for row in rows]
    assert list(reversed(AWKWARD[1:])) == keys


def test_a_window_lists_the_jobs_that_have_time_in_it(service: Service) -> None:
    """With their figures in it."""
    rows = service.pages("/v1/jobs", from_=T0 + 6850 * S, to=T0 + 6950 * S, cluster="c1")
    assert [(KEY, 100 * S, 0.0, 0)] == [(r["job"], r["wall_ns"], r["ett"], r["num_incidents"]) for r in rows]
    assert [] == service.pages("/v1/jobs", from_=T0 + 7200 * S, cluster="c1")
    assert [] == service.pages("/v1/jobs", to=T0, cluster="c1")


@pytest.mark.parametrize(
    "path", ["/v1/jobs", f"/v1/jobs/{quote(KEY, safe='')}/ledger", f"/v1/jobs/{KEY}/timeline"]
)
def test_csv_has_the_columns_of_the_json(service: Service, path: str) -> None:
    """One header row, the same values; a dangerous name is defused."""
    page = {} if path.endswith("/ledger") else {"limit": 1000}
    rows: list[dict[str, Any]] = service.get(path, **page)["items"]
    answer = service.ask(path, headers=CSV, **page)
    assert answer.headers["content-type"].startswith("text/csv")
    header, *cells = csv.reader(io.StringIO(answer.text, newline=""))
    assert list(rows[0]) == header
    assert len(rows) == len(cells)
    amount = "start" if path.endswith("/timeline") else "wall_ns"
    assert [str(row[amount]) for row in rows] == [row[header.index(amount)] for row in cells]
    if path == "/v1/jobs":
        names = [row[header.index("job")] for row in cells]
        assert "'=cmd|' /C calc'!A0" in names


def test_a_csv_without_rows_still_has_its_header(service: Service) -> None:
    answer = service.ask("/v1/jobs", headers=CSV, job="nobody")
    assert answer.text.startswith("job,name,cluster,")
    assert 1 == len(answer.text.splitlines())


def test_the_next_page_is_also_a_link(service: Service) -> None:
    """So that a client of CSV can go on."""
    answer = service.ask("/v1/jobs", headers=CSV, limit=1, cluster="keys")
    link = answer.headers["link"]
    path = link[link.index("<") + 1 : link.index(">")]
    assert 'rel="next"' in link
    following = service.client.get(path, headers=CSV)
    assert 2 == len(list(csv.reader(io.StringIO(following.text, newline=""))))


@pytest.mark.parametrize("key", AWKWARD)
def test_the_link_of_a_timeline_leads_to_its_next_page(service: Service, key: str) -> None:
    """Also where the key has to be encoded."""
    path = f"/v1/jobs/{quote(key, safe='')}/timeline"
    whole = service.get(path)["items"]
    first = service.ask(path, limit=1)
    assert whole[:1] == first.json()["items"]
    link = first.headers["link"]
    following = service.client.get(link[link.index("<") + 1 : link.index(">")])
    assert whole[1:2] == following.json()["items"]


def test_a_detail_takes_no_window(service: Service) -> None:
    """A parameter that would change nothing is refused."""
    assert 400 == service.ask(f"/v1/jobs/{KEY}", from_=T0).status_code
