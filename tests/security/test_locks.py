"""The lock files pin, with hashes, what pyproject.toml allows, for every Python and machine that is supported."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.security.locked import LOCKS, Pin, read_lock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILES = ("audit", "build", "dev", "fuzz", "service")
PLACES = [
    {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
        "platform_machine": machine,
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for python in ("3.10", "3.11", "3.12", "3.13", "3.14")
    for machine in ("x86_64", "aarch64")
]


def pins(name: str) -> list[Pin]:
    return list(read_lock(LOCKS / f"{name}.lock"))


def wanted(name: str) -> list[Requirement]:
    """What pyproject.toml asks for in the lock of that name."""
    project: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    groups = project["dependency-groups"]

    def of_group(group: str) -> list[str]:
        return [
            text
            for one in groups[group]
            for text in ([one] if isinstance(one, str) else of_group(one["include-group"]))
        ]

    service = project["project"]["optional-dependencies"]["service"]
    told = {"service": service, "dev": service + of_group("dev")}.get(name) or of_group(name)
    return [Requirement(text) for text in told]


@pytest.mark.parametrize("name", FILES)
def test_a_lock_satisfies_the_project_everywhere(name: str) -> None:
    """Forgotten `make lock` shows here: a requirement without its pin, or a pin that it does not allow."""
    found = pins(name)
    for place in PLACES:
        chosen = {pin.name: pin.version for pin in found if pin.holds(place)}
        for one in wanted(name):
            if one.marker is None or one.marker.evaluate(place):
                version = chosen.get(canonicalize_name(one.name))
                assert version is not None, f"{one} is not locked for {place}: make lock"
                assert one.specifier.contains(version, prereleases=True), f"{one}, locked {version}"


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_hashes_and_one_version_a_place(name: str) -> None:
    found = pins(name)
    assert [] == [pin.name for pin in found if not pin.hashes]
    for place in PLACES:
        versions: dict[str, list[str]] = defaultdict(list)
        for pin in found:
            if pin.holds(place):
                versions[pin.name].append(pin.version)
        assert {} == {one: many for one, many in versions.items() if len(many) > 1}


def test_one_environment_can_hold_all_but_the_auditors() -> None:
    """The service is tested with the versions that it is deployed with."""
    tested = {(pin.name, pin.version, str(pin.requirement.marker)) for pin in pins("dev")}
    known = {(name, version) for name, version, _ in tested}
    for name in ("service", "build"):
        assert set() == {(pin.name, pin.version) for pin in pins(name)} - known
