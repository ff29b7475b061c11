"""The service as a process of its own: `fleet-ett serve` on one port, killed and started again at will."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import uvicorn

from fleet_ett.app import create_app
from fleet_ett.demo.backstage import LISTENS, stop
from fleet_ett.postgres.pool import ANSWER_S, open_pool
from fleet_ett.settings import Settings
from fleet_ett.worker import Workers
from tests.http.service import serving
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def environ(**more: str) -> dict[str, str]:
    """Without settings of the machine's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    sources = [str(ROOT / name) for name in ("service", "collectors")]
    return kept | {"PYTHONPATH": os.pathsep.join(sources), "ETT_LOG_LEVEL": "warning"} | more


class Service:
    """`fleet-ett serve` with those options and variables."""

    def __init__(self, *options: str, **variables: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "fleet_ett", "serve", "--port", str(self.port), *options]
        self._environ = environ(**variables)
        self.process: subprocess.Popen[str] | None = None
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def start(self) -> Service:
        """Started, listening."""
        self.process = subprocess.Popen(self._command, env=self._environ, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(LISTENS)
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._over()

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)
            self._over()

    def _over(self) -> None:
        assert self.process is not None
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def status(self, path: str) -> int:
        """The status of a path; 0 without an answer."""
        try:
            return self.client.get(path).status_code
        except httpx.TransportError:
            return 0

    def is_ready(self) -> bool:
        return self.status("/readyz") == 200


@contextmanager
def service(*options: str, **variables: str) -> Iterator[Service]:
    """A running service until the block ends."""
    made = Service(*options, **variables)
    try:
        yield made.start()
    finally:
        made.client.close()
        made.stop()


def command(*words: str, **variables: str) -> str:
    """What another command of `fleet-ett` says."""
    done = subprocess.run(
        [sys.executable, "-m", "fleet_ett", *words],
        env=environ(**variables), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def hosted(url: str, *, workers: int = 1, answer_s: float = ANSWER_S) -> Iterator[str]:
    """The address of a service on the database `url` that runs in this process: it starts at once."""
    settings = Settings(attribution_workers=workers)
    engine = open_pool(url, answer_s=answer_s)
    config = uvicorn.Config(create_app(settings, engine), port=0, log_config=None, lifespan="off")
    try:
        with Workers(engine, settings), serving(config) as address:
            yield address
    finally:
        engine.dispose()
