"""The units: systemd takes them, and what they start is started here with their variables."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING

from fleet_ett.demo.backstage import LISTENS
from fleet_ett.listening import GRACE_S
from fleet_ett.serve import MARGIN_S
from fleet_ett.settings import OPTIONS
from tests.deploy.dockerfile import DEPLOY, Folder
from tests.faults.server import folder
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = DEPLOY / "systemd" / "fleet-ett.service"
MOST_EXPOSED = 2.5  # of 10, as `systemd-analyze security` counts


def read(path: Path) -> dict[str, list[str]]:
    """What a unit says, by key."""
    found = defaultdict(list)
    for line in path.read_text().splitlines():
        key, is_told, value = line.partition("=")
        if is_told and not line.startswith("#"):
            found[key].append(value)
    return found


def environ(path: Path) -> dict[str, str]:
    return dict(told.split("=", 1) for told in read(path)["Environment"])


def test_systemd_takes_the_unit_and_finds_it_confined(image: Folder, tmp_path: Path) -> None:
    """With the programs where the image has them, and with the drop-in for a server of one's own."""
    systemd = shutil.which("systemd-analyze")
    assert systemd, "no systemd-analyze: apt install systemd"
    there = tmp_path / SERVICE.name
    there.write_text(image.inside(SERVICE.read_text()))
    shutil.copytree(SERVICE.with_name(f"{SERVICE.name}.d"), tmp_path / f"{SERVICE.name}.d")
    done = subprocess.run([systemd, "verify", "--man=no", there], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    limit = f"--threshold={int(MOST_EXPOSED * 10)}"
    command = [systemd, "security", "--offline=true", "--no-pager", limit, there]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout


def test_every_setting_is_the_services() -> None:
    own_server = SERVICE.with_name("fleet-ett.service.d") / "database.conf"
    assert set(environ(SERVICE) | environ(own_server)) <= set(OPTIONS)
    (credential,) = read(own_server)["LoadCredential"]
    assert f"%d/{credential.partition(':')[0]}" == environ(own_server)["ETT_DATABASE_URL_FILE"]


def test_the_service_is_given_the_time_that_it_takes_to_end() -> None:
    told = read(SERVICE)
    assert float(told["TimeoutStopSec"][0]) > GRACE_S + MARGIN_S + 60  # and a checkpoint
    assert ["mixed"] == told["KillMode"]  # the service ends the embedded server, after itself
    (state,) = told["StateDirectory"]
    assert f"/var/lib/{state}" == environ(SERVICE)["ETT_DATA_DIR"]


def test_the_unit_migrates_serves_and_ends(service_image: Folder) -> None:
    """With the embedded server in its state folder, as a first start has it."""
    told = read(SERVICE)
    with folder() as root:
        port = str(free_port())
        env = {"PATH": os.environ["PATH"], "ETT_PORT": port}
        env |= {name: value.replace("/var/lib", str(root)) for name, value in environ(SERVICE).items()}
        before, serve = (
            service_image.inside(told[name][0]).split() for name in ("ExecStartPre", "ExecStart")
        )
        done = subprocess.run(before, env=env, cwd=root, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr
        assert re.match("the database is at migration", done.stdout)
        process = subprocess.Popen(
            serve, env=env, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert f"{LISTENS}http://127.0.0.1:{port}" == process.stdout.readline().strip()
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=float(told["TimeoutStopSec"][0]))
            assert 0 == process.returncode, said
        finally:
            process.kill()
            process.communicate()
