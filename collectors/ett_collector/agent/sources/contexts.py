"""What runs the attempts of this node, as it is told by the surroundings of their trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ett_collector.agent.sources.environ import read_environ
from ett_collector.agent.sources.source import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ett_collector.agent.sources.source import Surroundings

    Environ = Mapping[str, str]


class Contexts:
    """Looks into each new trainer once. `labels_of` (its pid, its environment): its labels; empty where it has none."""

    def __init__(self, around: Surroundings, labels_of: Callable[[int, Environ], dict[str, str]]) -> None:
        self._around = around
        self._labels_of = labels_of
        self._seen: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def look(self) -> list[tuple[Context, Environ]]:
        """Contexts of attempts that are new here, each with the environment of the trainer that tells it."""
        subjects = self._around.subjects
        found: list[tuple[Context, Environ]] = []
        for one in subjects:
            if one.name in self._seen or one.pid is None:
                continue
            self._seen.add(one.name)
            environ = read_environ(self._around.procfs, one.pid)
            labels = self._labels_of(one.pid, environ)
            if labels and (one.job, one.attempt) not in self._told:
                self._told.add((one.job, one.attempt))
                found.append((Context(one.job, one.attempt, labels), environ))
        self._seen &= {one.name for one in subjects}
        self._told &= {(one.job, one.attempt) for one in subjects}
        return found
