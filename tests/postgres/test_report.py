"""Dashboards read views and nothing else, and the views say what the service says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import make_url, text

from fleet_ett.__main__ import main
from fleet_ett.errors import Invalid, Unavailable
from fleet_ett.postgres.migrate import migrate, newest_revision
from fleet_ett.postgres.pool import transaction
from fleet_ett.postgres.report import make_reader
from fleet_ett.postgres.shards.schema import AT_HOME, REPORTS
from fleet_ett.postgres.tables import metadata
from tests.http.service import running
from tests.http.story import rollback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from fleet_ett.postgres.server import EmbeddedServer
    from tests.http.service import Service

VIEWS = "SELECT table_name FROM information_schema.views WHERE table_schema = 'report'"
READER = "test_reader"


@pytest.fixture(scope="module")
def service(engine: Engine) -> Iterator[Service]:
    """Two jobs in the books."""
    with running(engine) as service:
        service.book(
            rollback("one", cluster="c1", team="ads"), rollback("two", gpus=16, node="n2", cluster="c2")
        )
        yield service


@pytest.fixture(scope="module")
def reader(service: Service) -> Iterator[psycopg.Connection]:
    """A connection as the role that dashboards have."""
    with transaction(service.engine) as conn:
        make_reader(conn, READER)
    url = make_url(service.engine.url).set(drivername="postgresql", username=READER)
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as conn:
        yield conn
    with transaction(service.engine) as conn:
        conn.exec_driver_sql(f"DROP OWNED BY {READER}; DROP ROLE {READER}")


def test_the_reader_sees_every_view_and_no_table(reader: psycopg.Connection, service: Service) -> None:
    with service.engine.connect() as conn:
        names = set(conn.scalars(text(VIEWS)))
    assert {*REPORTS, "refused", "owners"} == names
    assert {"owners"} == names & set(AT_HOME)
    for name in names:
        reader.execute(f"SELECT * FROM {name}")
    for name in metadata.tables:
        with pytest.raises(errors.InsufficientPrivilege):
            reader.execute(f"SELECT * FROM public.{name}")


def test_the_reader_writes_nothing(reader: psycopg.Connection) -> None:
    assert ("on",) == reader.execute("SHOW default_transaction_read_only").fetchone()
    reader.execute("SET default_transaction_read_only = off")  # which anybody may: rights are what holds
    for statement in ("DELETE FROM owners", "CREATE TABLE mine ()", "CREATE TABLE public.mine ()"):
        with pytest.raises(errors.InsufficientPrivilege):
            reader.execute(statement)


def test_a_question_that_takes_too_long_ends(reader: psycopg.Connection) -> None:
    found = reader.execute("SHOW statement_timeout").fetchone()
    assert ("30s",) == found


def test_the_views_say_what_the_service_says(reader: psycopg.Connection, service: Service) -> None:
    detail = service.job("one")
    query = "SELECT ett, ett_gpu, wall_s, gpu_s, attempts, failures_infra, steps_replayed FROM jobs WHERE job = 'one'"
    told = reader.execute(query).fetchone()
    metrics = detail["metrics"]
    assert told == (
        detail["ett"], detail["ett_gpu_weighted"], detail["wall_ns"] / 1e9, detail["gpu_ns"] / 1e9,
        detail["num_attempts"], metrics["number_of_failures"], metrics["replayed_steps"],
    )  # fmt: skip
    rows = reader.execute(
        "SELECT attempt, ett, wall_s, time_to_first_step_s, cause FROM attempts WHERE job = 'one' ORDER BY 1"
    ).fetchall()
    assert [("a0", 100.0, "gpu_off_bus"), ("a1", 100.0, None)] == [(row[0], row[3], row[4]) for row in rows]
    assert [(one["ett"], one["wall_ns"] / 1e9) for one in detail["attempts"]] == [row[1:3] for row in rows]


@pytest.mark.parametrize("view", ["ledger", "job_hours"])
def test_a_job_s_hours_add_up_to_its_books(view: str, reader: psycopg.Connection, service: Service) -> None:
    query = f"SELECT job, sum(gpu_s) FROM {view} GROUP BY 1 ORDER BY 1"
    expected = [(job, service.job(job)["gpu_ns"] / 1e9) for job in ("one", "two")]
    assert expected == reader.execute(query).fetchall()


def test_an_incident_costs_what_the_service_says(reader: psycopg.Connection, service: Service) -> None:
    query = (
        "SELECT component, gpu_s, stall_s + gap_s + restart_s + replay_s FROM incidents WHERE cluster = 'c2'"
    )
    (one,) = service.pages("/v1/incidents", cluster="c2")
    parts = sum(one[f"{part}_ns"] for part in ("stall", "gap", "restart", "replay"))
    assert [(one["component"], one["gpu_ns"] / 1e9, parts / 1e9)] == reader.execute(query).fetchall()


def test_again_it_gets_a_new_password(service: Service, reader: psycopg.Connection) -> None:
    """The server is told a hash alone."""
    stored = text("SELECT rolpassword FROM pg_authid WHERE rolname = :name")
    with service.engine.connect() as conn:
        before = conn.scalar(stored, {"name": READER})
    with transaction(service.engine) as conn:
        password = make_reader(conn, READER)
        after = conn.scalar(stored, {"name": READER})
    assert before != after
    assert after.startswith("SCRAM-SHA-256$")
    assert password not in after
    reader.execute("SELECT FROM jobs")


@pytest.mark.parametrize("name", ["postgres", 'x"; DROP TABLE jobs', "", "1st", "A"])
def test_another_s_role_and_strange_names_are_refused(name: str, engine: Engine) -> None:
    with transaction(engine) as conn:
        owner = conn.scalar(text("SELECT current_user"))
        with pytest.raises(Invalid):
            make_reader(conn, owner if name == "postgres" else name)


def test_a_schema_that_was_made_before_is_taken(postgres: EmbeddedServer) -> None:
    """For a service whose user may make tables and no schemas."""
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute("CREATE ROLE plain_user LOGIN")
        admin.execute("CREATE DATABASE plain")
        url = make_url(postgres.url).set(database="plain")
        told = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(told, autocommit=True) as there:
            there.execute("GRANT CREATE, USAGE ON SCHEMA public TO plain_user")
            as_plain = url.set(username="plain_user").render_as_string(hide_password=False)
            with pytest.raises(Unavailable, match="permission denied for database"):
                migrate(as_plain)
            there.execute("CREATE SCHEMA report AUTHORIZATION plain_user")
        assert newest_revision() == migrate(as_plain)
        admin.execute("DROP DATABASE plain WITH (FORCE)")
        admin.execute("DROP ROLE plain_user")


def test_who_may_not_make_roles_is_told(engine: Engine) -> None:
    with engine.connect() as conn:  # rolled back
        conn.exec_driver_sql("CREATE ROLE nobody_much; SET LOCAL ROLE nobody_much")
        with pytest.raises(Invalid, match="--print"):
            make_reader(conn, "never_made")


def test_the_command_prints_the_password_alone(
    engine: Engine, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["db", "reader", "--database-url", database_url, "--name", "told_reader"])
    told = capsys.readouterr()
    assert 20 < len(told.out.strip()) == len(told.out) - 1
    assert "told_reader" in told.err
    assert told.out.strip() not in told.err
    with transaction(engine) as conn:
        conn.exec_driver_sql("DROP OWNED BY told_reader; DROP ROLE told_reader")


def test_the_sql_is_for_psql(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["db", "reader", "--print", "--name", "grafana"])
    told = capsys.readouterr().out
    assert "CREATE ROLE grafana " in told
    assert 'ON DATABASE :"DBNAME" TO grafana;' in told
