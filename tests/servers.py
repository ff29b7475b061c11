"""Real PostgreSQL servers for tests, in a folder of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.postgres.embedded.programs import find_bin_dir
from fleet_ett.postgres.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def started(folder: Path, servers: int) -> Iterator[list[EmbeddedServer]]:
    """So many servers, each with data of its own."""
    bin_dir = find_bin_dir(os.environ)
    with ExitStack() as stack:
        yield [
            stack.enter_context(EmbeddedServer.start(folder / f"server{number}", bin_dir=bin_dir))
            for number in range(servers)
        ]


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """A folder that the servers' unprivileged user can reach."""
    parent = Path(tempfile.mkdtemp(prefix="ett-"))
    parent.chmod(0o711)
    yield parent
    shutil.rmtree(parent)
