"""What ties an attempt to the others: the `Carry` that it leaves to the next, its place in the `Link`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleet_ett.core.coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Carry:
    """What an attempt leaves to the next: coverage of the data, work keys seen, GPUs held."""

    coverage: Coverage = field(default_factory=Coverage)
    work_keys: frozenset[str] = frozenset()

    @classmethod
    def empty(cls) -> Carry:
        """Before the first attempt."""
        return cls()

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "coverage": self.coverage.to_json(),
            "work_keys": sorted(self.work_keys),
        }

    def digest(self) -> str:
        """The same for equal carries alone."""
        return _digest(self.to_json())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Carry:
        """The carry that `to_json` wrote."""
        return cls(Coverage.from_json(data["coverage"]), frozenset(data["work_keys"]))


@dataclass(frozen=True, slots=True)
class Link:
    """Everything an attempt's books depend on besides its own events, `now` and the policy.

    `index`: place by start, from 0. `next_start`: when the next attempt starts (ns), None for the last;
    `next_released`: whether the hardware was given back in between.
    """

    index: int = 0
    carry: Carry = field(default_factory=Carry)
    next_start: int | None = None
    next_released: bool = True

    def digest(self) -> str:
        """Equal digests and equal events give equal books (a live attempt's grow with `now`)."""
        return link_digest(self.index, self.carry.digest(), self.next_start, released=self.next_released)


def link_digest(index: int, carry_digest: str, next_start: int | None, *, released: bool) -> str:
    """The digest of the link of those parts: no carry has to be at hand to see that none is another."""
    return _digest([index, carry_digest, next_start, released])


def _digest(told: object) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]
