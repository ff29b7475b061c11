"""Each alert in the real promtool: it fires when it should, alone, and no other time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import groups, render
from tests.prometheus.programs import program
from tests.prometheus.stories import promtool_file

HERE = Path(__file__).parent
DEPLOY = HERE.parents[1] / "deploy"
FILES = sorted((HERE / "alerts").glob("*.yaml"))
OBJECTIVES = (HERE / "objectives.yaml").read_text()
SHIPPED = (DEPLOY / "prometheus" / "objectives.yaml").read_text()
ALERTS = sorted(
    {
        rule["alert"]
        for group in yaml.safe_load(render(read_objectives(SHIPPED)))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of the stories."""
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(render(read_objectives(OBJECTIVES)))
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_stories(path: Path, rules: Path, tmp_path: Path) -> None:
    """What each story says fires, fires, and nothing else."""
    _tell(path, rules, tmp_path)


def test_stories_of_the_shipped_rules(tmp_path: Path) -> None:
    """With windows of hours: the page waits until an hour as a whole is bad, and comes then."""
    _tell(HERE / "shipped.yaml", DEPLOY / "prometheus" / "rules.yaml", tmp_path)


def _tell(path: Path, rules: Path, folder: Path) -> None:
    told = folder / path.name
    told.write_text(promtool_file(yaml.safe_load(path.read_text()), rules))
    done = subprocess.run(
        [program("promtool"), "test", "rules", told], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_every_alert_has_a_story_in_which_it_fires() -> None:
    """And a runbook of its own, and none is left of an alert that is gone."""
    fires = {
        alert["alertname"]
        for path in FILES
        for story in yaml.safe_load(path.read_text())
        for alert in story["fires"]
    }
    assert ALERTS == sorted(fires)
    assert ALERTS == sorted(path.stem for path in (DEPLOY / "runbooks").glob("Ett*.md"))


def test_every_alert_says_whose_it_is_and_where_to_look() -> None:
    """Owner and severity as labels (the owner of a component by its series), a runbook, a page."""
    for group in groups(read_objectives(SHIPPED)):
        for rule in (one.to_yaml() for one in group.rules):
            if "alert" in rule:
                assert rule["labels"]["severity"] in ("page", "ticket")
                assert (
                    "owner" in rule["labels"] or "group_left (owner) component:ett_owner:info" in rule["expr"]
                )
                assert rule["annotations"]["runbook_url"].endswith(f"/{rule['alert']}.md")
                assert rule["annotations"]["page_url"].startswith("https://ett.example.com/")
                assert rule["annotations"]["summary"]


def test_runbooks_are_short_and_complete() -> None:
    """What it means, how to look, what to do: in a page that is read at night."""
    for path in sorted((DEPLOY / "runbooks").glob("Ett*.md")):
        text = path.read_text()
        assert re.findall(r"^#+ (.*)$", text, re.MULTILINE) == [
            path.stem, "What it means", "How to look", "What to do",
        ], path  # fmt: skip
        assert len(text.splitlines()) < 40, path


def test_shipped_rules_are_those_of_the_shipped_objectives() -> None:
    """After a change of either: fleet-ett rules render deploy/prometheus/objectives.yaml --output .../rules.yaml."""
    path = DEPLOY / "prometheus" / "rules.yaml"
    assert render(read_objectives(SHIPPED)) == path.read_text()
    subprocess.run([program("promtool"), "check", "rules", path], capture_output=True, check=True)
