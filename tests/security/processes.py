"""`fleet-ett serve` as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def environment(**more: str) -> dict[str, str]:
    """This process's environment with other settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETT_")} | more


@contextmanager
def serving(settings: Mapping[str, str]) -> Iterator[str]:
    """The address of a service with those settings, on a free port, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_ett", "serve", "--port", "0"],
        env=environment(**settings),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield process.stdout.readline().removeprefix("fleet-ett listens on ").strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
