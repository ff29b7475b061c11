"""A real `fleet-ett serve` for the time of a measurement."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.demo.backstage import LISTENS, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Serving:
    """Where it listens on loopback, and its process (the parent of all, where it has several workers)."""

    port: int
    pid: int

    def family(self) -> list[int]:
        """The process and its children."""
        return [self.pid, *children_of(self.pid)]


@contextmanager
def serving(url: str, *, workers: int = 1, attribution: int = 1, **more: str) -> Iterator[Serving]:
    """A service over a database while the block runs. `attribution`: threads that book; `more`: settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    sources = os.pathsep.join(str(ROOT / name) for name in ("service", "collectors"))
    told = {
        "PYTHONPATH": sources,
        "ETT_DATABASE_URL": url,
        "ETT_ATTRIBUTION_WORKERS": str(attribution),
        "ETT_LOG_LEVEL": "warning",
    }
    command = (sys.executable, "-m", "fleet_ett", "serve", "--port", "0", "--workers", str(workers))
    process = subprocess.Popen(command, env=kept | told | more, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(LISTENS), line
        yield Serving(int(line.rpartition(":")[2]), process.pid)
    finally:
        stop(process)


def children_of(pid: int) -> list[int]:
    """The processes whose parent that is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.parent.name))
    return sorted(found)
