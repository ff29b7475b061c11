"""A rule and a group of rules as Prometheus reads them, and small pieces of PromQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_yaml(self) -> dict[str, Any]:
        """As Prometheus has it."""
        told: dict[str, Any] = {"record": self.name, "expr": self.expr}
        return told | ({"labels": dict(self.labels)} if self.labels else {})


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule; `persists`: the duration for which it must hold, empty for none."""

    name: str
    expr: str
    persists: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def to_yaml(self) -> dict[str, Any]:
        """As Prometheus has it."""
        told: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        told |= {"for": self.persists} if self.persists else {}
        return told | {"labels": dict(self.labels), "annotations": dict(self.annotations)}


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other, at one time."""

    name: str
    interval: str
    rules: tuple[Record | Alert, ...]

    def to_yaml(self) -> dict[str, Any]:
        """As Prometheus has it."""
        return {"name": self.name, "interval": self.interval, "rules": [one.to_yaml() for one in self.rules]}


def quoted(text: str) -> str:
    """A string of PromQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
