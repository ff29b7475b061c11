"""Where alerts and runbooks send people, the service answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import groups
from tests.http.service import running
from tests.http.story import rollback

if TYPE_CHECKING:
    from sqlalchemy import Engine

DEPLOY = Path(__file__).parents[2] / "deploy"
URL = "https://ett.example.com"
FILLED = {"component": "checkpoint", "cluster": "c1", "team": "ads", "job": "one", "name": "checkpoint"}


def filled(path: str) -> str:
    """A path with names for `{{ $labels.cluster | urlquery }}` and `<cluster>`."""
    path = re.sub(r"\{\{ \$labels\.(\w+)[^}]*\}\}", lambda found: FILLED[found[1]], path)
    return re.sub(r"<(\w+)>", lambda found: FILLED[found[1]], path)


def test_every_page_is_there(engine: Engine) -> None:
    objectives = read_objectives((DEPLOY / "prometheus" / "objectives.yaml").read_text())
    rules = [rule.to_yaml() for group in groups(objectives) for rule in group.rules]
    pages = {rule["annotations"]["page_url"].removeprefix(URL) for rule in rules if "alert" in rule}
    for path in (DEPLOY / "runbooks").glob("*.md"):
        pages |= set(re.findall(r"`(/(?:v1/|readyz|healthz)[^`]*)`", path.read_text()))
    with running(engine) as service:
        service.book(rollback("one", cluster="c1", team="ads"))
        answers = {page: service.client.get(filled(page)) for page in sorted(pages)}
    assert {} == {page: answer.text for page, answer in answers.items() if answer.status_code != 200}
