"""How long readers of a large fleet wait: `python tests/bench/readers.py [--jobs 10000] [--days 30]`.

Fills an embedded database with the books of a fleet (`fleet_books.py`), starts a real `fleet-ett serve` on it and asks
every GET path over HTTP with its usual parameters, one question at a time; prints p50 and p95 beside the goal.
`--keep DIR` fills a folder once and asks it again and again.
"""

from __future__ import annotations

import argparse
import http.client
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import psycopg

from fleet_ett.postgres.migrate import migrate
from fleet_ett.postgres.server import EmbeddedServer
from tests.bench.fleet_books import DAY, HOUR, fill
from tests.bench.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

GOAL_MS, METRICS_GOAL_MS = 100, 50
COMPONENTS = ("compiler", "checkpoint")
ETT, LOST, WORK = (f"/v1/fleet/{name}" for name in ("ett", "lost-time", "repeated-work"))
BY = (
    "cluster",
    "team",
    "model",
    "framework",
    "job",
    "hour",
    "day",
    "week",
    "cluster,team",
    "team,day",
    "cluster,hour",
)
LOST_BY = (
    "component",
    "owner",
    "phase",
    "heading",
    "repeated",
    "cause",
    "kind",
    "team",
    "job",
    "day",
    "component,day",
)
FILTERS = (
    {"cluster": "cluster-1"}, {"team": "team-01"}, {"model": "model-60"}, {"component": "compiler"},
    {"component": "data"}, {"phase": "compile_cold"}, {"cause": "gpu_oom"},
)  # fmt: skip

# Groups of so many kinds that there is no sum of them: of 30 days always, of a past window with `--wide`.
WIDE = (
    (ETT, {"by": "cluster,team,model"}), (ETT, {"by": "cluster,team,day"}), (ETT, {"by": "job,day"}),
    (LOST, {"by": "component,cluster,team"}), (LOST, {"by": "component,job"}),
)  # fmt: skip

Question = tuple[str, str]  # what it is called, and the path with its parameters


def questions(now: int, jobs: list[str], *, wide: bool = False) -> list[Question]:
    """Every path with its usual parameters, or WIDE of a past window; windows begin at any nanosecond."""
    windows = {
        name: {"from": str(now - days * DAY - 123_456_789)}
        for name, days in (("30 d", 30), ("7 d", 7), ("1 d", 1))
    }
    windows["past"] = {
        "from": str(now - 20 * DAY - 17 * HOUR // 13),
        "to": str(now - 6 * DAY + 5 * HOUR // 7),
    }
    # half a day in hours, the most there is, whatever the time is now; and that at both ends
    noon = now - now % DAY - DAY // 2
    windows["30 d from noon"] = {"from": str(noon - 29 * DAY - 123_456_789)}
    windows["noon to noon"] = {
        "from": str(noon - 20 * DAY - 123_456_789),
        "to": str(noon - 6 * DAY + 123_456_789),
    }
    windows["30 d to now"] = {"from": str(now - 30 * DAY), "to": str(now + 1)}
    windows["all"] = {}
    out: list[Question] = []
    asked = ((path, "noon to noon", more) for path, more in WIDE) if wide else _asked(jobs)
    for path, window, more in asked:
        told = " ".join(f"{key}={value}" for key, value in more.items())
        parameters = urlencode({**windows[window], **more})
        out.append((f"{path} {told} [{window}]", f"{path}?{parameters}" if parameters else path))
    return out


def _asked(jobs: list[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Path, window, parameters."""
    yield from ((ETT, window, {}) for window in ("all", "30 d", "7 d", "1 d", "past"))
    yield from ((ETT, "30 d", {"by": by}) for by in BY)
    yield from ((path, "30 d", more) for path, more in WIDE)
    for window in ("30 d from noon", "noon to noon", "30 d to now"):
        for by in ("", "team", "cluster,team", "job", "day", "week"):
            yield ETT, window, {"by": by} if by else {}
        yield from ((ETT, window, chosen) for chosen in ({"component": "compiler"}, {"cause": "gpu_oom"}))
        yield LOST, window, {"by": "team"}
        yield LOST, window, {"by": "cluster,team"}
        yield from ((path, window, {}) for path in ("/v1/components/checkpoint", WORK))
    yield ETT, "7 d", {"by": "hour", "limit": "200"}
    yield ETT, "1 d", {"by": "hour"}
    yield from ((ETT, "30 d", chosen) for chosen in FILTERS)
    yield from ((ETT, "30 d", {"team": "team-01", "by": by}) for by in ("day", "model", "hour"))
    yield ETT, "30 d", {"job": jobs[0], "by": "day"}
    yield from ((LOST, "30 d", {"by": by}) for by in LOST_BY)
    yield from ((LOST, "30 d", chosen) for chosen in FILTERS[:5])
    yield LOST, "past", {}
    yield from ((WORK, window, {}) for window in ("30 d", "7 d"))
    yield WORK, "30 d", {"team": "team-01"}
    yield "/v1/components", "30 d", {}
    for name in COMPONENTS:
        yield f"/v1/components/{name}", "30 d", {}
        yield f"/v1/components/{name}", "30 d", {"team": "team-01"}
    yield "/v1/components/compiler", "7 d", {"trend": "hour"}
    for path in ("/v1/incidents", "/v1/jobs"):
        yield path, "all", {}
        yield path, "past", {}
        yield from ((path, "30 d", chosen) for chosen in ({}, *FILTERS))
    yield "/v1/incidents", "30 d", {"kind": "infra"}
    yield from (("/v1/nodes", window, {}) for window in ("30 d", "7 d"))
    yield "/v1/nodes", "30 d", {"team": "team-01"}
    yield "/v1/quarantine", "7 d", {}
    for job in jobs:
        path = f"/v1/jobs/{quote(job, safe='')}"
        yield path, "all", {}
        yield f"{path}/ledger", "all", {"by": "phase,component"}
        yield f"{path}/ledger", "7 d", {"by": "hour"}
        yield f"{path}/timeline", "all", {"limit": "1000"}
        yield f"{path}/timeline", "1 d", {}
    yield "/metrics", "all", {}


def percentile(times: list[float], share: float) -> float:
    """The time (ms) that this share of the answers took at most: nearest rank."""
    return sorted(times)[max(math.ceil(len(times) * share), 1) - 1] * 1000


def measure(
    port: int, asked: list[Question], *, rounds: int, warm: int
) -> list[tuple[str, float, float, int]]:
    """(question, p50 ms, p95 ms, bytes of the answer), each asked so many times."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    out = []
    for name, path in asked:
        times, size = [], 0
        for at in range(warm + rounds):
            begin = time.perf_counter()
            link.request("GET", path)
            answer = link.getresponse()
            size = len(answer.read())
            took = time.perf_counter() - begin
            assert answer.status == 200, (path, answer.status)
            if at >= warm:
                times.append(took)
        out.append((name, percentile(times, 0.5), percentile(times, 0.95), size))
        print(f"... {out[-1][2]:8.1f} ms  {name}", file=sys.stderr, flush=True)
    link.close()
    return out


def report(found: list[tuple[str, float, float, int]]) -> None:
    """Print the table; what misses its goal is marked."""
    print(f"\n{'p50 ms':>8} {'p95 ms':>8} {'goal':>5} {'bytes':>9}  question")
    missed = 0
    for name, half, most, size in found:
        goal = METRICS_GOAL_MS if name.startswith("/metrics") else GOAL_MS
        missed += most > goal
        print(f"{half:8.1f} {most:8.1f} {goal:5}{'!' if most > goal else ' '} {size:8}  {name}")
    print(f"\n{len(found) - missed} of {len(found)} questions within the goal")
    print(f"beyond the goal: {missed}")


def main() -> None:
    """Fill, ask, and leave nothing behind but what `--keep` names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="", help="questions that hold this text")
    parser.add_argument("--wide", action="store_true", help="questions beyond the goal, and by how much")
    parser.add_argument("--keep", type=Path, help="folder of the database, filled if it is empty")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="ett-bench-"))
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711)
    try:
        with EmbeddedServer.start(folder / "data") as server:
            migrate(server.url)
            with psycopg.connect(server.conninfo) as conn:
                row = conn.execute("SELECT max(as_of_ns) FROM jobs").fetchone()
            now = (
                row[0]
                if row and row[0]
                else fill(server.url, server.conninfo, jobs=args.jobs, days=args.days)
            )
            with psycopg.connect(server.conninfo) as conn:
                chosen = conn.execute(
                    "(SELECT job FROM jobs ORDER BY (as_of_ns - start_ns) DESC LIMIT 1)"
                    " UNION ALL (SELECT job FROM jobs WHERE live ORDER BY job_id DESC LIMIT 1)"
                ).fetchall()
                sizes = conn.execute("SELECT count(*) FROM jobs"), conn.execute("SELECT count(*) FROM ledger")
                jobs, cells = (int((one.fetchone() or (0,))[0]) for one in sizes)
            every = questions(now, [job for (job,) in chosen], wide=args.wide)
            asked = [one for one in every if args.only in one[0]]
            with serving(server.url, attribution=0) as service:
                found = measure(service.port, asked, rounds=args.rounds, warm=3)
            print(f"\n{jobs:,} jobs, {cells:,} rows of the ledger; one question at a time")
            report(found)
    finally:
        if args.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
