"""`deploy/compose.yaml` without an engine: what each service runs, with what it mounts and whom it knows by name."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.deploy.dockerfile import DEPLOY, Folder, last, read_dockerfile, settings
from tests.prometheus.programs import program

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# What the images of others start; Debian calls Alertmanager otherwise.
PROGRAMS = {"prometheus": ("prometheus",), "alertmanager": ("prometheus-alertmanager", "alertmanager")}


class Composed:
    """The services of the compose file on this machine.

    `names` says for what stands in the file (`postgres:5432`, a volume's folder) what it is here. Folders that are
    mounted are copied with the same words put in.
    """

    def __init__(self, root: Path, names: Mapping[str, str], image: Folder) -> None:
        self.image = image
        self.names = dict(names) | {"/run/secrets": str(root / "secrets")}
        self.root = root
        for one in SERVICES.values():
            for volume in one.get("volumes", []):
                source, inside = volume.split(":")[:2]
                here = root / inside.strip("/").replace("/", "-")
                here.mkdir(exist_ok=True)
                if source.startswith("."):
                    self._fill(DEPLOY / source, here)
                self.names[inside] = str(here)

    def _fill(self, source: Path, here: Path) -> None:
        for path in source.iterdir() if source.is_dir() else ():
            if path.is_file():
                (here / path.name).write_text(self.here(path.read_text()))

    def here(self, text: str) -> str:
        """A text of the file's in the words of this machine."""
        longest_first = sorted(self.names, key=len, reverse=True)
        known = "|".join(map(re.escape, longest_first))
        return re.sub(rf"(?<![\w.])(?:{known})", lambda found: self.names[found[0]], text)

    def environ(self, service: str) -> dict[str, str]:
        """What the program of a service sees."""
        told = settings(read_dockerfile("service")) if "build" in SERVICES[service] else {}
        told |= SERVICES[service].get("environment", {})
        path = told.pop("PATH", "$PATH").replace("$PATH", os.environ["PATH"])
        return {
            "PATH": self.image.inside(path),
            **{name: self.here(value) for name, value in told.items()},
        }

    def command(self, service: str, *words: str) -> list[str]:
        """The program of a service with its command, or with other words in its place."""
        told = [self.here(word) for word in words or SERVICES[service]["command"]]
        if service in PROGRAMS:
            return [program(*PROGRAMS[service]), *told]
        return [self.program(service, last(read_dockerfile("service"), "ENTRYPOINT").words[0]), *told]

    def program(self, service: str, name: str) -> str:
        folder = self.environ(service)["PATH"].partition(":")[0]
        path = Path(folder) / name
        return str(path) if path.exists() else program(name)

    def run(self, service: str, *words: str) -> subprocess.CompletedProcess[str]:
        """`docker compose run --rm SERVICE WORDS`."""
        return subprocess.run(
            self.command(service, *words),
            env=self.environ(service), cwd=self.root, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def is_healthy(self, service: str, *, path: str = "") -> bool:
        """Whether the health check of a service says so. `path`: of its program, where the machine hides it."""
        kind, *words = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        words = [self.here(word) for word in words]
        words[0] = path or self.program(service, words[0])
        return (
            subprocess.run(words, env=self.environ(service), capture_output=True, check=False).returncode == 0
        )
