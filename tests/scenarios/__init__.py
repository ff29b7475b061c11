"""Golden scenarios as folders of data: `<name>/{about.md, events.jsonl, expected.json[, args.json]}`.

`events.jsonl` is a wire file (wire.md, "Offline"), `expected.json` a part of what `fleet-ett replay --json`
answers: whatever it names must be so, the rest is free. `args.json` holds `{"as_of": ns}`. A bug report is
a new folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Scenario:
    """One folder, read."""

    folder: Path
    lines: tuple[str, ...]
    expected: dict[str, Any]
    as_of: int | None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    def accept(self, expected: dict[str, Any]) -> None:
        """Write a new expected.json."""
        (self.folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def read_scenario(folder: Path) -> Scenario:
    """The scenario in `folder`."""
    args = folder / "args.json"
    return Scenario(
        folder,
        tuple((folder / "events.jsonl").read_text().splitlines()),
        json.loads((folder / "expected.json").read_text()),
        json.loads(args.read_text())["as_of"] if args.exists() else None,
    )


def all_scenarios() -> list[Scenario]:
    """Every scenario, by name."""
    return [read_scenario(path.parent) for path in sorted(FOLDER.glob("*/events.jsonl"))]
