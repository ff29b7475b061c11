"""The migration that tells apart in which phase a node held others up."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import make_url

from fleet_ett.postgres.migrate import downgrade, migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet_ett.postgres.server import EmbeddedServer

BEFORE = "2026_11_30_0010"
HOUR = 3_600_000_000_000
S = 1_000_000_000
GPUS = 2
LABELS = {
    "data_stall": ("data_wait", "data"),
    "checkpoint_save_block": ("checkpoint", "checkpoint"),
    "evaluation": ("evaluation", "model_owner"),
    "step_new_data": ("productive", "model_owner"),
}
# rank, start and end (s), phase: what the rank of that node was furthest behind in
SEGMENTS = (
    (0, 3590, 3620, "data_stall"),  # over the hour
    (0, 3700, 3800, "step_new_data"),
    (1, 3800, 3805, "checkpoint_save_block"),
    (1, 3805, 3812, "data_stall"),
    (2, 3812, 3813, "data_stall"),
    (2, 3813, 3815, "checkpoint_save_block"),
    (2, 3815, 3819, "evaluation"),
    (3, 3819, 3820, "data_stall"),
    (3, 3820, 3822, "checkpoint_save_block"),
)
# hour, rank, phase, s
HELD = (
    (0, 0, "data_stall", 10),  # all of the rank's time
    (1, 0, "data_stall", 20),  # all that was lost
    (1, 1, "data_stall", 7),  # a part of it
    (1, 2, "data_stall", 1),  # two parts of three: nothing says which
    (1, 2, "checkpoint_save_block", 2),
    (1, 3, "data_stall", 1),
    (1, 3, "checkpoint_save_block", 2),
    (9, 0, "data_stall", 4),  # whose segments are gone
)
NO_DOUBT = [
    (hour, rank, phase, wall) for hour, rank, phase, wall in HELD if (hour, rank) not in {(1, 2), (9, 0)}
]
OPEN = [(1, 2, "", 3), (9, 0, "", 4)]


@pytest.fixture
def there(postgres: EmbeddedServer) -> Iterator[tuple[str, psycopg.Connection]]:
    """The address of a database with a live attempt's books, and a connection to it."""
    name = f"parts_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    url = make_url(postgres.url).set(database=name)
    told = url.render_as_string(hide_password=False)
    migrate(told)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as conn:
        fill(conn)
        yield told, conn
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def fill(conn: psycopg.Connection) -> None:
    conn.execute("INSERT INTO jobs (job) VALUES ('long')")
    kept = [
        held(hour, rank, phase, wall) for hour, rank, phase, wall in HELD if (hour, rank) in {(1, 1), (1, 2)}
    ]
    conn.execute(
        "INSERT INTO attempts (job_id, attempt, index, resume) VALUES (1, 'a0', 0, %s), (1, 'a1', 1, NULL)",
        [json.dumps({"books_from": 3815 * S, "held": kept, "work": []})],
    )
    with conn.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO segments (job_id, attempt_id, start_ns, end_ns, heading, phase, component, rank, node,"
            " repeated, gpus, settled) VALUES (1, 1, %s, %s, %s, %s, %s, %s, %s, false, %s, true)",
            [
                (low * S, high * S, LABELS[phase][0], phase, LABELS[phase][1], rank, f"n{rank}", GPUS)
                for rank, low, high, phase in SEGMENTS
            ],
        )
        cursor.executemany(
            "INSERT INTO held_up (job_id, attempt_id, hour_ns, node, rank, phase, component, wall_ns, gpu_ns)"
            " VALUES (1, 1, %(hour)s, %(node)s, %(rank)s, %(phase)s, %(component)s, %(wall_ns)s, %(gpu_ns)s)",
            [held(*one) for one in HELD],
        )


def held(hour: int, rank: int, phase: str, wall: int) -> dict[str, Any]:
    component = LABELS[phase][1] if phase else ""
    told = {"hour": hour * HOUR, "node": f"n{rank}", "rank": rank, "phase": phase, "component": component}
    return {**told, "wall_ns": wall * S, "gpu_ns": wall * S * GPUS}


def stored(conn: psycopg.Connection, names: str) -> list[tuple[Any, ...]]:
    return conn.execute(f"SELECT {names} FROM held_up ORDER BY {names}").fetchall()


def test_rows_are_told_apart_by_the_segments_and_added_up_again(
    there: tuple[str, psycopg.Connection],
) -> None:
    """Down they are sums; up again they are as they were where the segments leave no doubt, else of no phase."""
    url, conn = there
    downgrade(url, BEFORE)
    sums: dict[tuple[int, int], int] = {}
    for hour, rank, _, wall in HELD:
        sums[hour, rank] = sums.get((hour, rank), 0) + wall
    names = "hour_ns, node, rank, wall_ns, gpu_ns"
    expected = [(h * HOUR, f"n{r}", r, wall * S, wall * S * GPUS) for (h, r), wall in sums.items()]
    assert sorted(expected) == stored(conn, names)
    migrate(url)
    names = "hour_ns, node, rank, phase, component, wall_ns, gpu_ns"
    rows = [tuple(held(*one).values()) for one in (*NO_DOUBT, *OPEN)]
    assert sorted(rows) == stored(conn, names)


def test_where_a_live_attempt_goes_on_is_told_apart_up_to_there(
    there: tuple[str, psycopg.Connection],
) -> None:
    """Segments after the seam have no say: up to it the third rank had held others up in all of its time."""
    url, conn = there
    query = "SELECT resume FROM attempts WHERE attempt = 'a0'"
    (before,) = conn.execute(query).fetchone() or ()
    downgrade(url, BEFORE)
    (between,) = conn.execute(query).fetchone() or ()
    assert [("n1", 7 * S), ("n2", 3 * S)] == sorted((one["node"], one["wall_ns"]) for one in between["held"])
    assert {"hour", "node", "rank", "wall_ns", "gpu_ns"} == set(between["held"][0])
    migrate(url)
    (after,) = conn.execute(query).fetchone() or ()
    by_name = sorted(after.pop("held"), key=lambda one: (one["node"], one["phase"]))
    assert sorted(before.pop("held"), key=lambda one: (one["node"], one["phase"])) == by_name
    assert before == after
    assert [(None,)] == conn.execute("SELECT resume FROM attempts WHERE attempt = 'a1'").fetchall()


def test_the_report_has_them(there: tuple[str, psycopg.Connection]) -> None:
    url, conn = there
    query = "SELECT phase, component, sum(wall_s) FROM report.held_up GROUP BY 1, 2 ORDER BY 1"
    assert [("checkpoint_save_block", "checkpoint", 4.0), ("data_stall", "data", 43.0)] == conn.execute(
        query
    ).fetchall()
    downgrade(url, BEFORE)
    assert [(47.0,)] == conn.execute("SELECT sum(wall_s) FROM report.held_up").fetchall()
