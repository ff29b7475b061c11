"""The document says what the service does, and the service does what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.http import job_schemas, owner_schemas, schemas
from fleet_ett.http.schemas import Listing
from tests.http.story import T0, S, rollback

if TYPE_CHECKING:
    from pydantic import BaseModel

    from tests.http.service import Service

ANSWERS: dict[str, type[BaseModel]] = {
    "/v1/fleet/ett": schemas.FleetEtt,
    "/v1/fleet/ett?by=cluster,day": schemas.FleetEtt,
    "/v1/fleet/lost-time": schemas.LostTime,
    "/v1/fleet/lost-time?by=cause": schemas.LostTime,
    "/v1/fleet/repeated-work": schemas.RepeatedWork,
    "/v1/jobs": Listing[job_schemas.JobRow],
    "/v1/jobs/{job}": job_schemas.JobDetail,
    "/v1/jobs/{job}/ledger": job_schemas.JobLedger,
    "/v1/jobs/{job}/timeline": job_schemas.Timeline,
    "/v1/jobs/{job}/goodput": job_schemas.JobGoodput,
    "/v1/incidents": Listing[owner_schemas.IncidentRow],
    "/v1/components": Listing[owner_schemas.ComponentRow],
    "/v1/components/checkpoint": owner_schemas.ComponentPage,
    "/v1/nodes": Listing[owner_schemas.NodeRow],
    "/v1/quarantine": Listing[owner_schemas.QuarantineRow],
    "/healthz": schemas.Health,
    "/readyz": schemas.Readiness,
}


FILE = Path(schemas.__file__).parent / "examples.json"
JOB = "prod-a/8812/1772452800"
# path -> what is asked for its example
EXAMPLES = {
    "/v1/fleet/ett": "/v1/fleet/ett?by=cluster",
    "/v1/fleet/lost-time": "/v1/fleet/lost-time?by=component,owner&component=compiler",
    "/v1/fleet/repeated-work": "/v1/fleet/repeated-work",
    "/v1/jobs": "/v1/jobs",
    "/v1/jobs/{job}": f"/v1/jobs/{JOB}",
    "/v1/jobs/{job}/ledger": f"/v1/jobs/{JOB}/ledger?by=attempt",
    "/v1/jobs/{job}/timeline": f"/v1/jobs/{JOB}/timeline?limit=2",
    "/v1/jobs/{job}/goodput": f"/v1/jobs/{JOB}/goodput",
    "/v1/incidents": "/v1/incidents",
    "/v1/components": "/v1/components?limit=2",
    "/v1/components/{name}": "/v1/components/checkpoint",
    "/v1/nodes": "/v1/nodes",
    "/v1/quarantine": "/v1/quarantine",
    "/healthz": "/healthz",
    "/readyz": "/readyz",
}
STEADY = {
    "last_seen": T0 + 7200 * S,
    "received": T0 + 7200 * S,
    "version": "0.1.0",
    "migration": "2026_11_29_1500",
    "head": "2026_11_29_1500",
}


@pytest.fixture(scope="module", autouse=True)
def books(service: Service) -> None:
    """A job, and an event that nobody can take."""
    service.book(rollback(JOB, node="gpu-0017", cluster="prod-a", team="ads", model="dlrm", name="DLRM 7"))
    agent = {"node": "gpu-0017", "incarnation": "0f3c9a"}
    bad = {
        "seq": 9,
        "type": "phase",
        "job": JOB,
        "attempt": "a0",
        "rank": 0,
        "phase": "compile_cold",
        "start": 2,
        "end": 1,
    }
    service.client.post("/v1/events", json={"agent": agent, "events": [bad]}).raise_for_status()


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = service.get("/openapi.json")
    return found


@pytest.mark.parametrize("path", ANSWERS)
def test_an_answer_has_the_fields_that_are_documented(service: Service, path: str) -> None:
    """All of them and no other, each of its type."""
    ANSWERS[path].model_validate(service.get(path.replace("{job}", JOB)), strict=True)


def test_every_path_is_documented(document: dict[str, Any]) -> None:
    """With a summary, a description, a schema of its answer, and the problems that it may give."""
    told = {path.partition("?")[0].replace("checkpoint", "{name}") for path in ANSWERS}
    assert {*told, "/v1/events", "/metrics"} == set(document["paths"])
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert operation["description"], path
            assert operation["tags"], path
            assert "422" not in operation["responses"], path
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert ["application/problem+json"] == list(answer["content"]), (path, status)


def test_every_list_is_documented_with_its_window_page_and_csv(document: dict[str, Any]) -> None:
    """The parameters of the contract, each with words."""
    for path in (
        "/v1/fleet/ett",
        "/v1/jobs",
        "/v1/incidents",
        "/v1/components",
        "/v1/nodes",
        "/v1/fleet/lost-time",
    ):
        operation = document["paths"][path]["get"]
        parameters = {one["name"]: one for one in operation["parameters"]}
        expected = {
            "from",
            "to",
            "cluster",
            "team",
            "model",
            "job",
            "component",
            "phase",
            "cause",
            "limit",
            "cursor",
        }
        assert expected <= set(parameters), path
        assert all(one["description"] for one in parameters.values()), path
        assert {"application/json", "text/csv"} == set(operation["responses"]["200"]["content"]), path


def test_examples_are_answers(
    service: Service, document: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Each path has a whole one, as the service gives it; `--accept` writes them anew, for review in the diff."""
    answers = {path: steady(service.get(asked)) for path, asked in EXAMPLES.items()}
    if request.config.getoption("--accept"):
        FILE.write_text(json.dumps(answers, indent=1) + "\n")
        return
    told = {
        path: document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["example"]
        for path in EXAMPLES
    }
    assert answers == steady(told)


def steady(value: Any) -> Any:
    """The answer with fixed stamps for what the machine's clock, and the version, decide."""
    if isinstance(value, dict):
        return {name: STEADY[name] if name in STEADY and one else steady(one) for name, one in value.items()}
    return [steady(one) for one in value] if isinstance(value, list) else value
