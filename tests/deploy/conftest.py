"""What the Dockerfiles make, laid down in a folder once for a whole run."""

from __future__ import annotations

import fcntl
import os
import sysconfig
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from tests.deploy.dockerfile import Folder, read_dockerfile, stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.postgres.server import EmbeddedServer


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The agent's image: this project and nothing else. Several workers share it."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "image"
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Folder(root)
        if not root.exists():
            for stage in stages(read_dockerfile("agent")):
                folder.lay(stage)
    return folder


@pytest.fixture(scope="session")
def service_image(image: Folder) -> Folder:
    """The service's: the same, and the packages of `service.lock`, which `make test` compared with its environment.

    `make test-images` installs them as the Dockerfile does.
    """
    (site,) = (image.root / "opt" / "fleet-ett").glob("lib/python*/site-packages")
    packages = Path(sysconfig.get_path("purelib"))
    # whole at once: other workers' programs start from there meanwhile
    aside = image.root.with_suffix(f".{uuid.uuid4().hex}")
    aside.write_text(f"import site; site.addsitedir({str(packages)!r})\n")
    aside.replace(site / "locked.pth")
    return image


@pytest.fixture
def empty_database(postgres: EmbeddedServer) -> Iterator[str]:
    """The address of a database without a table."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield (
            make_url(postgres.url)
            .set(drivername="postgresql", database=name)
            .render_as_string(hide_password=False)
        )
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
