"""The field's own linters on every file of `deploy/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.deploy.dockerfile import DEPLOY

MANIFESTS = [
    each
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
    # kustomize's own, and the Prometheus operator's, of which there is no schema here
    if not each["apiVersion"].startswith(("kustomize.config.k8s.io/", "monitoring.coreos.com/"))
]
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
    """Without a key that the schema does not know."""
    for each in MANIFESTS:
        kubernetes_validate.validate(each, version, strict=True)


def test_yaml_is_written_alike() -> None:
    """But what is rendered."""
    paths = [
        path for path in DEPLOY.rglob("*.y*ml") if path.name not in ("rules.yaml", "prometheus-rule.yaml")
    ]
    run(tool("yamllint"), "--strict", "-d", STYLE, *paths)


def test_scripts_are_plain_shell() -> None:
    run("sh", "-n", DEPLOY / "docker" / "secrets.sh")
