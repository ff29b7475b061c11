"""The field's own linters on every file of `deploy/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.dockerfile import DEPLOY

MANIFESTS = sorted(
    path
    for path in (DEPLOY / "kubernetes").glob("*.yaml")
    if path.name not in ("kustomization.yaml", "monitoring.yaml", "prometheus-rule.yaml")
)
KUBERNETES = ("1.30", "1.34", "1.37")  # the oldest, one that many run, the newest that is known
STYLE = """
extends: default
rules:
  braces: {max-spaces-inside: 1}
  comments: {min-spaces-from-content: 1}
  document-start: disable
  line-length: {max: 130}
  octal-values: disable
"""


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def tool(name: str) -> str:
    """A program of the environment that the tests run in."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"no {name}: make .venv/dev.stamp"
    return found


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("docker/*.Dockerfile")), ids=lambda path: path.name)
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    run(tool("hadolint"), path)


def test_the_compose_file_is_of_its_schema() -> None:
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_of_kubernetes_schemas(version: str) -> None:
    run(tool("kubernetes-validate"), "--strict", "--quiet", "-k", version, *MANIFESTS)


def test_yaml_is_written_alike() -> None:
    """But what is rendered."""
    paths = [
        path for path in DEPLOY.rglob("*.y*ml") if path.name not in ("rules.yaml", "prometheus-rule.yaml")
    ]
    run(tool("yamllint"), "--strict", "-d", STYLE, *paths)


def test_scripts_are_plain_shell() -> None:
    run("sh", "-n", DEPLOY / "docker" / "secrets.sh")
