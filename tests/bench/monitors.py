"""Real Prometheus and Alertmanager for the time of a measurement."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from fleet_ett.demo.backstage import stop
from tests.ports import free_port
from tests.prometheus.programs import program
from tests.prometheus.running import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Monitor:
    """Where it listens (host:port), and its process."""

    address: str
    pid: int


@contextmanager
def prometheus(folder: Path, configuration: dict[str, Any]) -> Iterator[Monitor]:
    """Prometheus in a folder that has its rules.yaml; `data` there is where it keeps its blocks."""
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    flags = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", "--storage.tsdb.retention.time=40d")
    with _running(program("prometheus"), *flags, folder=folder) as monitor:
        yield monitor


@contextmanager
def alertmanager(folder: Path, configuration: dict[str, Any]) -> Iterator[Monitor]:
    """Alertmanager, alone."""
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(configuration))
    flags = ("--config.file=alertmanager.yml", "--storage.path=alerts", "--cluster.listen-address=")
    with _running(program("prometheus-alertmanager", "alertmanager"), *flags, folder=folder) as monitor:
        yield monitor


@contextmanager
def _running(name: str, *flags: str, folder: Path) -> Iterator[Monitor]:
    address = f"127.0.0.1:{free_port()}"
    with (folder / f"{name.rpartition('/')[2]}.log").open("w") as log:
        process = subprocess.Popen(
            [name, *flags, f"--web.listen-address={address}"], cwd=folder, stdout=log, stderr=log
        )
        try:
            until = time.monotonic() + PATIENCE_S
            while not is_ready(address):
                assert process.poll() is None, log.name
                assert time.monotonic() < until, log.name
                time.sleep(0.1)
            yield Monitor(address, process.pid)
        finally:
            stop(process)
