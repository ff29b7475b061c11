"""The committed dashboards, and what Grafana makes of their queries before it asks."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
BOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
}
NANO = 1_000_000_000


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels that show something."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every query with its dashboard and panel in words."""
    for uid, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield f"{uid}: {panel['id']} {panel['title']} ({target['refId']})", target
        for annotation in board["annotations"]["list"]:
            asked = annotation.get("target") or {"expr": annotation["expr"], "range": True}
            yield f"{uid}: annotation {annotation['name']}", asked
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                asked = (
                    {"rawSql": variable["query"]}
                    if "SELECT" in variable["query"]
                    else {"label": variable["query"]}
                )
                yield f"{uid}: variable {variable['name']}", asked


def filled(text: str, values: dict[str, str]) -> str:
    """Variables replaced: `$name`, `${name}` and `${name:format}`; a format of SQL sets the quotes."""

    def value(found: re.Match[str]) -> str:
        name, form = found["plain"] or found["braced"], found["format"]
        if name not in values:
            return found[0]
        return f"'{values[name]}'" if form == "sqlstring" else values[name]

    return re.sub(r"\$(?:(?P<plain>\w+)|\{(?P<braced>\w+)(?::(?P<format>\w+))?\})", value, text)


def sql(text: str, values: dict[str, str], start_s: int, end_s: int) -> str:
    """SQL with variables and the data source's macros replaced."""
    moments = {
        name: datetime.fromtimestamp(at, tz=timezone.utc) for name, at in (("From", start_s), ("To", end_s))
    }
    # a macro ends at the first closing bracket, as in Grafana
    text = re.sub(
        r"\$__unixEpochNanoFilter\(([^)]*)\)",
        rf"\1 >= {start_s * NANO} AND \1 <= {end_s * NANO}",
        filled(text, values),
    )
    for name, at in moments.items():
        text = text.replace(f"$__unixEpochNano{name}()", str(int(at.timestamp()) * NANO))
        text = text.replace(f"$__time{name}()", f"'{at.isoformat()}'")
    assert not re.search(r"\$[\w{]", text), text
    return text
