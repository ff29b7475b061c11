"""The manifests as kustomize puts them together, and those that are applied by themselves."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import yaml

from tests.deploy.dockerfile import DEPLOY
from tests.deploy.test_linted import tool

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = DEPLOY / "kubernetes"
Manifest = dict[str, Any]


def built() -> list[Manifest]:
    """What `kubectl apply -k` would apply."""
    told = subprocess.run([tool("kubectl"), "kustomize", FOLDER], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(told.stdout))


def read(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def one(manifests: list[Manifest], kind: str, name: str = "fleet-ett") -> Manifest:
    (found,) = [each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """The specs of all pods."""
    for each in manifests:
        if each["kind"] == "Pod":
            yield each["spec"]
        elif "template" in each.get("spec", {}):
            yield each["spec"]["template"]["spec"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def environ(container: Manifest) -> dict[str, str]:
    """The variables that have a value here."""
    return {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}
