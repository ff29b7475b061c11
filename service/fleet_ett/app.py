"""The only wiring: settings and a database engine become the application.

`http/` and `metrics/` know nothing of `postgres/`; what they need of it is handed to them here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI

from fleet_ett import __version__
from fleet_ett.http import (
    component_routes,
    fleet_routes,
    health_routes,
    incident_routes,
    ingest_routes,
    job_routes,
    node_routes,
)
from fleet_ett.http.door import Door
from fleet_ett.http.errors import install_errors
from fleet_ett.http.job_paths import JobPaths
from fleet_ett.http.openapi import DESCRIPTION, install_openapi
from fleet_ett.http.pressure import Pressure
from fleet_ett.http.probe import Probe
from fleet_ett.metrics.exporter import Page
from fleet_ett.postgres.audit import AuditLog
from fleet_ett.postgres.claims import PostgresClaims
from fleet_ett.postgres.queries.metrics import read_readings
from fleet_ett.postgres.readiness import check_ready
from fleet_ett.postgres.reads import open_books
from fleet_ett.postgres.shards.claims import FleetClaims
from fleet_ett.postgres.shards.reads import list_away, open_fleet_books, read_fleet_readings
from fleet_ett.postgres.shards.store import FleetStore
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.postgres.tokens import PostgresTokens
from fleet_ett.rates import shared_rates
from fleet_ett.sieve import Sieve
from fleet_ett.worker import policy_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from fleet_ett.postgres.shards.servers import Fleet
    from fleet_ett.settings import Settings


# In the order in which OpenAPI lists them.
ROUTES = (
    ingest_routes,
    fleet_routes,
    job_routes,
    incident_routes,
    component_routes,
    node_routes,
    health_routes,
)


def create_app(settings: Settings, engine: Engine, fleet: Fleet | None = None) -> FastAPI:
    """The application over an engine whose database is, or will be, at the newest migration.

    `fleet`: the servers that own the jobs, where `engine` is only their home.
    """
    app = FastAPI(
        title="fleet-ett",
        version=__version__,
        description=DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.tokens = tokens = PostgresTokens(engine)
    store: PostgresStore | FleetStore
    if fleet is None:
        app.state.open_books = partial(open_books, engine, policy_of(settings))
        app.state.expose_metrics = Page(partial(read_readings, engine))
        app.state.claims = PostgresClaims(engine, tokens.clusters)
        store = PostgresStore(engine)
    else:
        app.state.open_books = partial(open_fleet_books, fleet, policy_of(settings))
        app.state.expose_metrics = Page(partial(read_fleet_readings, fleet))
        app.state.claims = FleetClaims(fleet, tokens.clusters)
        store = FleetStore(fleet)
    app.state.ready = Probe(partial(_check_all, engine, fleet))
    app.state.store = Sieve(store)
    app.state.count_rejected = store.count_rejected
    app.state.note = note = AuditLog(engine)
    app.state.pressure = Pressure()
    for routes in ROUTES:
        app.include_router(routes.router)
    app.add_middleware(JobPaths)
    rates = shared_rates(engine.url.render_as_string(hide_password=True))
    app.add_middleware(Door, tokens=tokens, rates=rates, note=note, is_local=settings.is_loopback)
    install_errors(app)
    install_openapi(app)
    return app


def _check_all(engine: Engine, fleet: Fleet | None) -> tuple[str, list[str]]:
    """The migration, and what is wrong with some of several servers. Raises `Unavailable`."""
    return check_ready(engine), [] if fleet is None else list_away(fleet)
