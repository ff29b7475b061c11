"""`fleet-ett serve` as a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def environment(**more: str) -> dict[str, str]:
    """This process's environment with other settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETT_")} | more


@contextlib.contextmanager
def serving(settings: Mapping[str, str], log: Path | None = None) -> Iterator[str]:
    """The address of a service with those settings, on a free port, until the block ends; what it logs in a file."""
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet_ett", "serve", "--port", "0"],
            env=environment(**settings),
            stdout=subprocess.PIPE,
            stderr=None if log is None else stack.enter_context(log.open("w")),
            text=True,
        )
    assert process.stdout
    try:
        yield process.stdout.readline().removeprefix("fleet-ett listens on ").strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
