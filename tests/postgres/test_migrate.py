"""Migrations: run from code, by many at once, up and down and up again."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import make_url

from fleet_ett.errors import Invalid, Unavailable
from fleet_ett.postgres.migrate import current_revision, downgrade, migrate, newest_revision
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.tables import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.postgres.server import EmbeddedServer

MIGRATIONS = Path(__file__).parents[2] / "migrations" / "versions"


@pytest.fixture
def empty_url(postgres: EmbeddedServer) -> Iterator[str]:
    """A database without a table."""
    name = f"empty_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def differences(url: str) -> list[object]:
    """What the database has otherwise than `tables.py`."""
    engine = open_pool(url)
    with engine.connect() as conn:
        options = {"compare_server_default": True, "compare_type": True}
        found = compare_metadata(MigrationContext.configure(conn, opts=options), metadata)
    engine.dispose()
    return list(found)


def test_the_migrations_make_what_the_code_expects(empty_url: str) -> None:
    assert newest_revision() == migrate(empty_url)
    assert [] == differences(empty_url)


def test_up_down_and_up_again(empty_url: str) -> None:
    migrate(empty_url)
    assert "base" == downgrade(empty_url, "base")
    engine = open_pool(empty_url)
    with engine.connect() as conn:
        assert current_revision(conn) is None
        left = conn.exec_driver_sql(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        )
        assert {"alembic_version", "alembic_version_pkc"} == set(left.scalars())
    engine.dispose()
    migrate(empty_url)
    assert [] == differences(empty_url)


def test_several_may_migrate_at_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert {newest_revision()} == set(pool.map(migrate, [empty_url] * 4))


def test_a_migration_is_done_once(empty_url: str) -> None:
    migrate(empty_url)
    assert newest_revision() == migrate(empty_url)


def test_every_migration_is_dated_and_limits_its_locks_first() -> None:
    for path in MIGRATIONS.glob("*.py"):
        assert path.name[:15].replace("-", "").isdigit(), path.name
        text = path.read_text()
        for function in ("def upgrade", "def downgrade"):
            body = text.partition(function)[2]
            assert (
                0
                < body.find("SET LOCAL lock_timeout")
                < min(body.find(word) for word in ("op.", "CREATE") if word in body)
                + len('op.execute("SET LOCAL lock_timeout')
            ), path.name


def test_a_database_that_is_not_utf8_is_refused(postgres: EmbeddedServer) -> None:
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(Invalid, match="LATIN1"):
                migrate(make_url(postgres.url).set(database="latin").render_as_string(hide_password=False))
        finally:
            admin.execute("DROP DATABASE latin WITH (FORCE)")


def test_a_database_that_is_not_there_is_told(postgres: EmbeddedServer) -> None:
    url = make_url(postgres.url).set(database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(Unavailable, match="nowhere"):
        migrate(url)
