"""What OpenAPI says of every path beyond its own schema: CSV, paging, problems."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from fleet_ett.http.door import PROBES
from fleet_ett.http.errors import MEDIA_TYPE
from fleet_ett.http.schemas import Problem

if TYPE_CHECKING:
    from fastapi import FastAPI

DESCRIPTION = """
Effective training time of a fleet: where every second of every job went, and whose it was.

* Times are integer nanoseconds since the epoch in UTC, durations integer nanoseconds; sums may exceed
  2^63. Ratios are 0..1, or null where the denominator is empty.
* `from` and `to` bound the window [from, to): RFC 3339 with a zone, or nanoseconds.
* Lists are paged: pass `next` as `cursor` (a `Link` header names the same page).
* `Accept: text/csv` gives the rows as CSV. A text cell that a spreadsheet would run as a formula gets
  a leading apostrophe there; JSON gives names unchanged.
* Where the service has access tokens, every request but the probes needs `Authorization: Bearer ett_...`.
* Errors are problem details (RFC 9457) with a stable `code`.
"""
TOKEN = {"type": "http", "scheme": "bearer", "description": "Needed once a token was made."}
Responses = dict[int | str, dict[str, Any]]


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}


PROBLEMS: Responses = {
    400: _problem("A parameter cannot be understood; the detail says what is expected."),
    401: _problem("No token, or not a good one (only where the service has tokens)."),
    403: _problem("The token does not cover this."),
    429: _problem("More requests a second than the token may make; see `Retry-After`."),
    503: _problem("The database cannot be reached; try again after `Retry-After` seconds."),
}
# One whole answer of each path, as the service gave it (a test asks again).
EXAMPLES: dict[str, Any] = json.loads(resources.files("fleet_ett.http").joinpath("examples.json").read_text())
CSV_ROWS: dict[str, Any] = {
    "text/csv": {"schema": {"type": "string", "description": "The rows, with a header."}}
}


READS: Responses = {200: {"content": CSV_ROWS}, **PROBLEMS}
READS_ONE: Responses = {**READS, 404: _problem("There is no such job or component.")}


def install_openapi(app: FastAPI) -> None:
    """Have the document say what the service does: a refused parameter is a 400 problem, not a 422."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path in PROBES else [{}, {"token": []}]
                operation["responses"].pop("422", None)
            if path in EXAMPLES:  # set here, for FastAPI would leave out what is null
                content = operations["get"]["responses"]["200"]["content"]
                content["application/json"]["example"] = EXAMPLES[path]
        components = document.setdefault("components", {})
        components["securitySchemes"] = {"token": TOKEN}
        schemas = components.get("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
