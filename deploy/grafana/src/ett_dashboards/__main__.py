"""`python -m ett_dashboards`: write all dashboards as JSON, from the objectives that Prometheus' rules are made of."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from ett_dashboards import collectors, component, fleet, job, lost_time, restarts
from fleet_ett.rules.reading import read_objectives

if TYPE_CHECKING:
    from ett_dashboards.board import Board

DEPLOY = Path(__file__).resolve().parents[3]
BOARDS = (fleet, lost_time, restarts, job, component, collectors)


def rendered(objectives: str) -> dict[str, str]:
    """Each dashboard's file name and text. Raises `Invalid` for objectives that cannot be read."""
    read = read_objectives(objectives)
    boards = [module.board(read) for module in BOARDS]
    return {f"{board.uid}.json": _text(board) for board in boards}


def _text(board: Board) -> str:
    made: dict[str, Any] = json.loads(JSONEncoder().encode(board.build()))
    links = [*made["links"], *made["annotations"]["list"]]
    for panel in made["panels"]:
        links += panel.get("links", [])
    for link in links:  # the SDK would have newer versions of Grafana put them away into a menu
        link.pop("placement", None)
    return json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objectives", type=Path, default=DEPLOY / "prometheus" / "objectives.yaml")
    parser.add_argument("--output", type=Path, default=DEPLOY / "grafana" / "dashboards")
    args = parser.parse_args()
    for name, text in rendered(args.objectives.read_text(encoding="utf-8")).items():
        (args.output / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
