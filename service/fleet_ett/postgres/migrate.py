"""Bring a database to the newest migration, from a checkout or from an installed wheel.

Everything runs in one transaction behind one lock: several processes may start at once, and a migration that
fails leaves nothing behind. Sums are made anew by the code that keeps them, once, after the last migration: one that
makes or changes their tables leaves them empty, so that it is the same for ever.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from fleet_ett.errors import EttError, Invalid, Unavailable
from fleet_ett.postgres.pool import UNBOUNDED_S, open_pool
from fleet_ett.postgres.refill import refill, vacuum

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

HEAD = "head"
OLDEST = 15  # PostgreSQL major version
LOCK = 0x6574_7401  # "ett" and a number of its own
SUMS = "2026_11_30_0310"  # the newest migration that changes what sums there are
_IS_BOOKED = text("SELECT EXISTS (SELECT 1 FROM ledger) OR EXISTS (SELECT 1 FROM work)")


def migrate(url: str, revision: str = HEAD) -> str:
    """Bring the database at `url` up to `revision`; returns the revision that it is at.

    Safe to call from many processes at once. New sums of ten million rows of the ledger take some minutes. Raises
    `Invalid` for a server that is too old or not in UTF-8, `Unavailable` where it cannot be reached or its tables are
    locked for too long.
    """
    return _run(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> str:
    """Take migrations back to `revision` ("base": all of them). What their tables held is lost."""
    return _run(url, lambda config: command.downgrade(config, revision))


@cache
def newest_revision() -> str:
    """The revision that this version of the code expects."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def check_revision(current: str | None) -> None:
    """Raises `Unavailable` where a database at `current` is older or newer than this version, saying what to do."""
    head = newest_revision()
    if current == head:
        return
    if current is None or current in _known_revisions():
        msg = f"the database is at migration {current or 'none'}, the service needs {head}: run fleet-ett migrate"
    else:
        msg = (
            f"the database is at migration {current}, which this version of the service does not know (its newest is "
            f"{head}): run the newer version of fleet-ett"
        )
    raise Unavailable(msg)


@cache
def _known_revisions() -> frozenset[str]:
    return frozenset(one.revision for one in ScriptDirectory.from_config(_config()).walk_revisions())


def current_revision(conn: Connection) -> str | None:
    """The revision that the database is at; None before the first migration."""
    return MigrationContext.configure(conn).get_current_revision()


def _run(url: str, act: Callable[[Config], None]) -> str:
    engine = open_pool(url, size=1, answer_s=UNBOUNDED_S)
    try:
        with engine.begin() as conn:
            _check_server(conn)
            conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            current = current_revision(conn)
            if current is not None and current not in _known_revisions():
                check_revision(current)
            config = _config()
            config.attributes["connection"] = conn
            act(config)
            reached = current_revision(conn)
            are_new = SUMS in _lineage(reached) - _lineage(current) and bool(conn.scalar(_IS_BOOKED))
            if are_new:
                refill(conn)
        if are_new:
            vacuum(engine)
    except DBAPIError as error:
        raise _told(error) from error
    else:
        return reached or "base"
    finally:
        engine.dispose()


def _lineage(revision: str | None) -> frozenset[str]:
    """A revision and all that it stands on."""
    if revision is None:
        return frozenset()
    walked = ScriptDirectory.from_config(_config()).iterate_revisions(revision, "base")
    return frozenset(one.revision for one in walked)


def _check_server(conn: Connection) -> None:
    version = int(conn.execute(text("SHOW server_version_num")).scalar_one())
    if version < OLDEST * 10_000:
        msg = f"PostgreSQL {version // 10_000} is too old: {OLDEST} or newer is needed"
        raise Invalid(msg)
    encoding = conn.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        msg = f"the database's encoding is {encoding}: create it with ENCODING 'UTF8'"
        raise Invalid(msg)


def _told(error: DBAPIError) -> EttError:
    first = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
    return Unavailable(f"the database could not be migrated: {first}")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option(
        "file_template", "%%(year)d-%%(month).2d-%%(day).2d-%%(hour).2d%%(minute).2d_%%(slug)s"
    )
    return config


def _scripts() -> Path:
    """The migrations: inside the installed package, else in the checkout that it is run from."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"
