"""The committed dashboards are what the source makes, say what they show, and lead to what is there."""

from __future__ import annotations

import importlib
import json
import re
import sys
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.grafana.boards import BOARDS, DEPLOY, panels, queries

if TYPE_CHECKING:
    from types import ModuleType

OBJECTIVES = (DEPLOY / "prometheus" / "objectives.yaml").read_text()
TITLES = {
    "ett-fleet": "Fleet ETT%",
    "ett-lost-time": "Where time goes",
    "ett-restarts": "Restarts and repeated work",
    "ett-job": "Job",
    "ett-component": "Component owner",
    "ett-collectors": "Collectors' health",
}
PANELS = {
    f"{uid}: {panel['id']} {panel['title']}": panel
    for uid, board in BOARDS.items()
    for panel in panels(board)
}
each_board = pytest.mark.parametrize("uid", BOARDS)
with_sdk = pytest.mark.skipif(sys.version_info < (3, 11), reason="the SDK needs Python 3.11; CI has it")


@pytest.fixture(scope="module")
def source() -> ModuleType:
    """The package that makes the dashboards."""
    sys.path.insert(0, str(DEPLOY / "grafana" / "src"))
    return importlib.import_module("ett_dashboards.__main__")


def texts(board: dict[str, Any]) -> list[str]:
    """Every text of a dashboard in which a variable may stand."""
    found: list[str] = []

    def look(part: Any) -> None:
        if isinstance(part, str):
            found.append(part)
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            look(inner)

    look(board)
    return found


def used(text: str) -> set[str]:
    """Variables of a text, Grafana's own left out."""
    return {name for name in re.findall(r"\$\{?(\w+)", text) if not name.startswith("__")}


@with_sdk
def test_what_is_committed_is_what_the_source_makes(source: ModuleType) -> None:
    """`make dashboards` after a change of the source, or of the objectives."""
    made = source.rendered(OBJECTIVES)
    assert {f"{uid}.json" for uid in BOARDS} == set(made)
    for name, text in made.items():
        assert text == (DEPLOY / "grafana" / "dashboards" / name).read_text(), f"{name}: make dashboards"


@with_sdk
@each_board
def test_the_sdk_reads_back_all_that_is_in_it(uid: str) -> None:
    """A key that the schema does not have would be lost, a value that it does not know refused."""
    runtime = importlib.import_module("grafana_foundation_sdk.cog.runtime")
    sql = importlib.import_module("ett_dashboards.queries").Sql
    importlib.import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    runtime.register_dataquery_variant(
        runtime.DataqueryConfig(identifier="grafana-postgresql-datasource", from_json_hook=sql.from_json)
    )
    model = importlib.import_module("grafana_foundation_sdk.models.dashboard").Dashboard
    encoder = importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder
    again = json.loads(encoder().encode(model.from_json(BOARDS[uid])))
    of_panels = [link for panel in again["panels"] for link in panel.get("links", [])]
    for link in [*again["links"], *again["annotations"]["list"], *of_panels]:
        link.pop("placement", None)  # which the SDK adds
    assert BOARDS[uid] == again


def test_all_dashboards_are_there() -> None:
    assert TITLES == {uid: board["title"] for uid, board in BOARDS.items()}
    for uid, board in BOARDS.items():
        assert uid == board["uid"]
        assert board["description"]
        assert ["fleet-ett"] == board["tags"] == board["links"][0]["tags"]


def test_a_panel_says_what_it_shows() -> None:
    """A title, a text in whole sentences, a unit, and words for when there is nothing."""
    for name, panel in PANELS.items():
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"], name
        assert len(panel["description"]) > 20, name
        assert panel["description"].endswith("."), name
        assert defaults["noValue"], name
        assert defaults["thresholds"]["steps"][0]["value"] is None, name
        refs = [target["refId"] for target in panel["targets"]]
        assert refs, name
        assert sorted(set(refs)) == refs, name


@with_sdk
def test_units_are_grafanas() -> None:
    units = vars(importlib.import_module("grafana_foundation_sdk.models.units")).values()
    known = {unit for unit in units if isinstance(unit, str)}
    for name, panel in PANELS.items():
        overrides = [one for override in panel["fieldConfig"]["overrides"] for one in override["properties"]]
        told = [panel["fieldConfig"]["defaults"]["unit"]]
        told += [one["value"] for one in overrides if one["id"] == "unit"]
        assert [] == [unit for unit in told if unit not in known and not unit.startswith("suffix:GPU")], name


def test_what_is_named_gpu_hours_is_divided_by_3600() -> None:
    """And shares are no percentages: `percentunit` is of 0..1."""
    for name, panel in PANELS.items():
        if "suffix:GPU-h" == panel["fieldConfig"]["defaults"]["unit"]:
            assert all("/ 3600" in (one.get("expr") or one["rawSql"]) for one in panel["targets"]), name
        assert "percent" != panel["fieldConfig"]["defaults"]["unit"], name


@each_board
def test_the_grid_has_no_holes_and_no_overlaps(uid: str) -> None:
    places = [panel["gridPos"] for panel in BOARDS[uid]["panels"]]
    cells = [
        {(x, y) for x in range(one["x"], one["x"] + one["w"]) for y in range(one["y"], one["y"] + one["h"])}
        for one in places
    ]
    assert not any(a & b for a, b in combinations(cells, 2))
    assert all(one["x"] + one["w"] <= 24 for one in places)
    bottom = max(one["y"] + one["h"] for one in places)
    assert 24 * bottom == sum(map(len, cells))


@each_board
def test_variables_are_defined_and_used(uid: str) -> None:
    board = BOARDS[uid]
    defined = {variable["name"] for variable in board["templating"]["list"]}
    told = set().union(*(used(text) for text in texts(board)))
    assert defined == told | {"cluster"}, (
        "a cluster is kept for the next dashboard where nothing here asks for it"
    )


@each_board
def test_sources_are_chosen_by_variables(uid: str) -> None:
    """Not one data source is named by an id that only one Grafana has."""
    for _, query in queries():
        if "datasource" in query:
            assert query["datasource"]["uid"] in ("${prometheus}", "${postgres}")
    variables = [one for one in BOARDS[uid]["templating"]["list"] if one["type"] == "datasource"]
    chosen = {one["name"]: one["current"]["value"] for one in variables}
    provisioned = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "datasources" / "fleet-ett.yaml").read_text()
    )
    there = {one["uid"]: one["type"] for one in provisioned["datasources"]}
    assert {"prometheus": "ett-prometheus", "postgres": "ett-postgres"} == chosen
    assert {"ett-prometheus": "prometheus", "ett-postgres": "grafana-postgresql-datasource"} == there


def links(board: dict[str, Any]) -> list[tuple[dict[str, Any] | None, str]]:
    """Every address that something leads to, and the panel that it stands in."""
    found = []
    for panel in panels(board):
        defaults, overrides = panel["fieldConfig"]["defaults"], panel["fieldConfig"]["overrides"]
        told = [*panel["links"], *defaults.get("links", [])]
        told += [
            link for one in overrides for p in one["properties"] if p["id"] == "links" for link in p["value"]
        ]
        found += [(panel, link["url"]) for link in told]
    return found


def test_a_panel_leads_to_the_services_page() -> None:
    for name, panel in PANELS.items():
        assert panel["links"], name
        assert all(link["url"].startswith("${service}/") and link["title"] for link in panel["links"]), name


@each_board
def test_links_between_dashboards_fit(uid: str) -> None:
    """The dashboard is there, has the variables that it is given, and the row has the column that is passed."""
    leads = [(panel, url) for panel, url in links(BOARDS[uid]) if not url.startswith("${service}")]
    for panel, url in leads:
        if "from_ms" in url:  # the job's whole life
            assert "ett-job" == uid
            assert all(f" AS {name}" in panel["targets"][0]["rawSql"] for name in ("from_ms", "to_ms"))
            continue
        kept = r"\$\{cluster:queryparam\}&\$\{__url_time_range\}"
        found = re.fullmatch(rf"/d/([\w-]+)\?(?:var-(\w+)=\$\{{(.+?)\}}&)?{kept}", url)
        assert found, url
        target = BOARDS[found[1]]
        names = {variable["name"] for variable in target["templating"]["list"]}
        assert "cluster" in names
        if found[2]:
            assert found[2] in names
            column = re.fullmatch(r"__(?:data\.fields|field\.labels)\.(\w+):percentencode", found[3])
            assert column
            asked = " ".join(one.get("expr") or one["rawSql"] for one in panel["targets"])
            assert column[1] in asked


def test_every_dashboard_but_the_job_s_own_is_led_to() -> None:
    told = {url.partition("?")[0].removeprefix("/d/") for board in BOARDS.values() for _, url in links(board)}
    assert {"ett-job", "ett-component"} <= told  # the bar at the top leads to all


@with_sdk
def test_thresholds_follow_the_objectives(source: ModuleType) -> None:
    """Another objective, other colors: nothing is written down twice."""

    def steps(objectives: str, board: str, title: str) -> list[float | None]:
        made = json.loads(source.rendered(objectives)[f"{board}.json"])
        panel = next(one for one in panels(made) if one["title"] == title)
        return [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]

    other = yaml.safe_load(OBJECTIVES)
    other["clusters"]["default"]["ett_pct"] = 80
    other["clusters"]["default"]["budgets_pct"] = {"checkpoint": 3}
    other["regressions"]["rise_pct"] = 50
    other["telemetry"]["unknown_pct"] = 7
    changed = yaml.safe_dump(other)
    assert [None, 0.5, 0.75, 0.9] == steps(OBJECTIVES, "ett-fleet", "ETT%")
    assert [None, 0.4444, 0.6666, 0.8] == steps(changed, "ett-fleet", "ETT%")
    assert [None, 0.2] == steps(changed, "ett-lost-time", "Lost share")
    assert [None, 0.07] == steps(changed, "ett-lost-time", "Unknown")
    assert [None, 1, 1.5] == steps(changed, "ett-restarts", "Against the past (6h)")
    assert [None, 300] == steps(OBJECTIVES, "ett-collectors", "Books behind by")


def test_series_of_every_window_are_recorded() -> None:
    """What a panel asks by `$window` is there for each choice of it; names of recorded series are real."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    recorded = {rule.get("record") for group in rules["groups"] for rule in group["rules"]}
    for uid, board in BOARDS.items():
        windows = [one["query"].split(",") for one in board["templating"]["list"] if one["name"] == "window"]
        for name in set(re.findall(r"[a-z_]+:ett_[\w:]+(?:\$\{window\})?", json.dumps(board))):
            for window in (windows or [[""]])[0]:
                assert name.replace("${window}", window) in recorded, (uid, name)


def test_the_shipped_folder_is_the_one_that_is_mounted() -> None:
    """In the README as in the provider."""
    told = yaml.safe_load((DEPLOY / "grafana" / "provisioning" / "dashboards" / "fleet-ett.yaml").read_text())
    (provider,) = told["providers"]
    assert "file" == provider["type"]
    assert provider["options"]["path"] in (DEPLOY / "grafana" / "README.md").read_text()


def test_what_grafana_is_to_be_told_stands_in_the_readme() -> None:
    """Every variable of the data sources, and no other."""
    told = (DEPLOY / "grafana" / "README.md").read_text()
    asked = (DEPLOY / "grafana" / "provisioning" / "datasources" / "fleet-ett.yaml").read_text()
    assert set(re.findall(r"\$(GF_\w+)", asked)) == set(re.findall(r"^(GF_\w+)=", told, re.MULTILINE))
