"""What a lock file says: versions with hashes, each for the Pythons and machines of its marker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCKS = Path(__file__).parents[2] / "deploy" / "locks"


@dataclass(frozen=True, slots=True)
class Pin:
    """One line of a lock file. `hashes`: how many files it stands for."""

    requirement: Requirement
    hashes: int

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        (only,) = self.requirement.specifier
        assert "==" == only.operator
        return only.version

    def holds(self, environment: dict[str, str] | None = None) -> bool:
        """Whether it is installed there (default: here)."""
        marker = self.requirement.marker
        return marker is None or marker.evaluate(environment)


def read_lock(path: Path) -> Iterator[Pin]:
    """The pins of a lock file."""
    text = path.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        told, *hashes = line.partition(" #")[0].split("--hash=sha256:")
        if told.strip() and not told.lstrip().startswith("#"):
            yield Pin(Requirement(told.strip()), len(hashes))
