"""The tables as Citus distributes them: its rules, checked on our schema. `make test-citus` runs the service on it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import BigInteger, Column, ForeignKey, Identity, MetaData, Table, Text, UniqueConstraint

from fleet_ett.__main__ import main
from fleet_ett.errors import Invalid
from fleet_ett.postgres.shards.citus import (
    DISTRIBUTED,
    LOCAL,
    broken_rules,
    distribute,
    placement,
    statements,
)
from fleet_ett.postgres.tables import metadata
from tests.citus import not_distributed
from tests.postgres.agents import HOUR, Agent, crashed_and_resumed
from tests.postgres.stored import LONG_AGO, NOW, book

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from fleet_ett.postgres.store import PostgresStore

pytestmark = not_distributed
PARTITION = re.compile(r"events_\d+")


def test_the_database_keeps_the_rules(engine: Engine) -> None:
    """Of what the migrations make: keys hold the job's id, foreign keys go through it or to reference tables."""
    found = MetaData()
    found.reflect(engine)
    assert set(metadata.tables) == {
        name for name in found.tables if not PARTITION.match(name) and name != "alembic_version"
    }
    assert [] == broken_rules(found)
    assert [] == broken_rules(metadata)


def test_what_is_kept_for_each_job_is_distributed() -> None:
    """The large tables are; names and what is said once are not."""
    large = {
        "events",
        "attempts",
        "attempt_nodes",
        "ledger",
        "segments",
        "held_up",
        "incidents",
        "counters",
    }
    assert large <= {name for name, table in metadata.tables.items() if placement(table) == DISTRIBUTED}


def test_broken_rules_are_told() -> None:
    """A migration that breaks one is seen by the test above."""
    schema = MetaData()
    local = Table("local", schema, Column("id", BigInteger, primary_key=True))
    Table(
        "bad",
        schema,
        Column("job_id", BigInteger, Identity(), primary_key=True),
        Column("name", Text),
        Column("local_id", ForeignKey(local.c.id)),
        UniqueConstraint("name"),
    )
    assert {
        "bad: the key (name) does not hold job_id",
        "bad: the foreign key to local does not go through job_id",
        "bad: job_id is numbered by the table itself",
    } == set(broken_rules(schema))


def test_each_table_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    """`fleet-ett db shard --print` says where each table goes."""
    assert 0 == main(["db", "shard", "--print"])
    told = capsys.readouterr().out
    assert told.splitlines() == [f"{statement};" for statement in statements()]
    calls = r"create_(reference|distributed)_table\('(\w+)'"
    said = [(name, where) for where, name in re.findall(calls, told)]
    assert sorted(said) == sorted(
        (name, placement(table)) for name, table in metadata.tables.items() if placement(table) != LOCAL
    )


def test_identities_of_spread_tables_become_sequences(engine: Engine) -> None:
    """Citus takes no identities of integers; the replacement numbers on where the identity was."""
    changes = [
        one for one in statements() if "sequence" in one.lower() or "IDENTITY" in one or "setval" in one
    ]
    with engine.connect() as conn:
        conn.exec_driver_sql("INSERT INTO jobs (job) VALUES ('before')")
        for statement in changes:
            conn.exec_driver_sql(statement)
        conn.exec_driver_sql("INSERT INTO jobs (job) VALUES ('after')")
        ids = list(conn.exec_driver_sql("SELECT job_id FROM jobs ORDER BY job_id").scalars())
        conn.exec_driver_sql(f"INSERT INTO attempts (job_id, attempt) VALUES ({ids[1]}, 'a')")
        conn.rollback()
    assert ids[1] == ids[0] + 1


def test_parts_of_hours_are_the_same_in_a_language_that_citus_plans(
    store: PostgresStore, engine: Engine
) -> None:
    """The function that tells them is made anew of its own text, whatever the newest migration has made of it."""
    agent = Agent()
    crashed_and_resumed(agent, "j", LONG_AGO)
    agent.hand_in(store, now=NOW)
    book(engine, NOW)
    (change,) = (one for one in statements() if "plpgsql" in one)
    starts = [LONG_AGO + minutes * HOUR // 60 for minutes in range(0, 60, 7)]
    asked = [f"SELECT * FROM edge_segments({at - at % HOUR}, {at}, {at + HOUR // 120})" for at in starts]
    with engine.connect() as conn:
        before = [list(conn.exec_driver_sql(one)) for one in asked]
        conn.exec_driver_sql(change)
        language = "SELECT lanname FROM pg_proc JOIN pg_language l ON l.oid = prolang WHERE proname = 'edge_segments'"
        assert "plpgsql" == conn.exec_driver_sql(language).scalar()
        assert any(before)
        assert before == [list(conn.exec_driver_sql(one)) for one in asked]
        conn.rollback()


def test_without_citus_it_says_what_to_do(engine: Engine) -> None:
    """A clear error, and what there is instead."""
    with pytest.raises(Invalid, match=r"no extension citus.*shared_preload_libraries.*--servers"):
        list(distribute(engine))
