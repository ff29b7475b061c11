"""A month of a fleet as Prometheus has it on disk: names and labels of real series, values that a fleet could have.

Every recorded or scraped series goes back as far as any rule looks (`reaches`): what lies before is in blocks that no
rule opens. A counter is its rate times `activity`, so that sums and scraped pages fit what was recorded before.
"""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fleet_ett.rules.durations import seconds
from tests.ports import free_port
from tests.prometheus.programs import program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

BLOCK = "54h"  # the longest that Prometheus itself makes of a month
SPARE_S = 600  # rules look a little further back than their window
_READ = re.compile(r"([a-z][\w:]*)(?:\{[^}]*\})?(?:\[(\w+)\])?(?: offset (\w+))?")
_SAMPLE = re.compile(r"(\w+)(\{.*\})? (\S+)")
_COUNTERS = ("_total", "_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class Series:
    """A name with its labels, and its value after one second of activity, or always (`rises` is False)."""

    name: str
    labels: str
    amount: float
    rises: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Series that are written from `begin` on (s since 1970), a sample every `step` s."""

    series: list[Series]
    begin: int
    step: int


class Activity:
    """How busy the fleet was since `begin` (s since 1970), in seconds: by the minute half to one and a half."""

    def __init__(self, begin: int, end: int) -> None:
        dice = np.random.default_rng(7)
        self._at = np.arange(begin, end + 7200, 60)
        self._sum = np.concatenate(([0], np.cumsum(60 * dice.uniform(0.5, 1.5, len(self._at) - 1))))

    def at(self, times: NDArray[Any]) -> NDArray[np.float64]:
        """Its value at each of the times."""
        return np.interp(times, self._at, self._sum)


def reaches(rules: Mapping[str, Any]) -> dict[str, int]:
    """How far back (s) rules look by name of the series; those that are only read as they are now are left out."""
    out: dict[str, int] = {}
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        for name, window, offset in _READ.findall(rule["expr"]):
            reach = sum(seconds(text, name) for text in (window, offset) if text)
            if reach > out.get(name, 0):
                out[name] = reach
    return out


def scraped(page: str) -> list[Series]:
    """The series of a page of `/metrics`, with a rate for each counter; gauges as they are."""
    out, dice = [], random.Random(7)
    for line in page.splitlines():
        if found := _SAMPLE.fullmatch(line):
            name, labels, value = found[1], found[2] or "{}", float(found[3])
            rises = name.endswith(_COUNTERS)
            rate = dice.uniform(100, 200) if 'heading="productive"' in labels else dice.uniform(0.01, 0.5)
            out.append(Series(name, labels, rate if rises else value, rises))
    return out


def page_at(series: Iterable[Series], activity: Activity, now: float) -> bytes:
    """What a scrape at `now` finds."""
    factor = float(activity.at(np.array([now]))[0])
    lines = [
        f"{one.name}{one.labels} {one.amount * factor if one.rises else one.amount:.6f}\n" for one in series
    ]
    return "".join(lines).encode()


@contextmanager
def replica(series: list[Series], activity: Activity) -> Iterator[int]:
    """A stand-in for a replica of the service; yields its port."""

    class Shown(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = page_at(series, activity, time.time())
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Shown)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def with_labels(series: Iterable[Series], **more: str) -> list[Series]:
    """The same with labels that Prometheus adds when it scrapes."""
    told = ",".join(f'{name}="{value}"' for name, value in more.items())
    return [
        Series(
            one.name, f"{{{told}{',' if len(one.labels) > 2 else ''}{one.labels[1:]}", one.amount, one.rises
        )
        for one in series
    ]


def write_blocks(stretches: list[Stretch], activity: Activity, folder: Path, now: int) -> int:
    """Blocks up to `now` in a folder that a Prometheus then starts on; returns how many samples they hold."""
    length = seconds(BLOCK, "block")
    first = min(one.begin for one in stretches)
    edges = [first, *range((first // length + 1) * length, now, length), now]
    text, samples = folder.with_suffix(".om"), 0
    for begin, end in pairwise(edges):
        with text.open("w", encoding="utf-8") as out:
            for one in stretches:
                for written in _lines(one, activity, begin, end):
                    samples += len(written)
                    out.writelines(written)
            out.write("# EOF\n")
        subprocess.run(
            [program("promtool"), "tsdb", "create-blocks-from", f"--max-block-duration={BLOCK}", "--quiet",
             "openmetrics", text, folder],
            check=True,
        )  # fmt: skip
    text.unlink()
    return samples


def _lines(stretch: Stretch, activity: Activity, begin: int, end: int) -> Iterator[list[str]]:
    low = max(begin, stretch.begin)
    times = np.arange(-(-low // stretch.step) * stretch.step, end, stretch.step)
    if not len(times):
        return
    risen = activity.at(times)
    swing = np.random.default_rng(low).uniform(0.9, 1.0, len(times))
    stamps = [f" {time}\n" for time in times.tolist()]
    for one in stretch.series:
        values = (one.amount * (risen if one.rises else swing)).tolist()
        head = f"{one.name}{one.labels} "
        yield [f"{head}{value:.6f}{stamp}" for value, stamp in zip(values, stamps, strict=True)]
