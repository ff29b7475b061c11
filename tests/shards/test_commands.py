"""What commands say of several servers is of all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleet_ett.__main__ import main
from fleet_ett.postgres import rollups
from tests.postgres.agents import HOUR, Agent, crashed_and_resumed

if TYPE_CHECKING:
    from tests.shards.fleet import FleetService

T0 = 1_772_452_800_000_000_000
JOBS = 8


def test_stats_and_sums_are_of_all_servers(
    spread: FleetService, urls: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of all are counted, sums of all are checked, and wrong ones are made anew where they are."""
    monkeypatch.setenv("ETT_DATABASE_URL", urls[0])
    monkeypatch.setenv("ETT_SHARD_URLS", ",".join(urls[1:]))
    agent = Agent()
    for number in range(JOBS):
        crashed_and_resumed(agent, f"j{number}", T0 + number * HOUR)
    agent.hand_in(spread.app.state.store, now=T0)
    spread.make_books(T0 + 24 * HOUR)
    for engine in spread.engines:
        rollups.fold(engine)
    told = stats(capsys, 0)
    rows = {one["name"]: one["rows"] for one in told["tables"]}
    assert (JOBS, 2 * JOBS) == (rows["jobs"], rows["attempts"])
    assert [] == told["check"]
    wrong = next(number for number, engine in enumerate(spread.engines) if days_of(engine))
    with spread.engines[wrong].begin() as conn:
        conn.exec_driver_sql("UPDATE fleet_days SET wall_ns = wall_ns + 1")
    (found,) = stats(capsys, 1)["check"]
    assert found.startswith(f"server {wrong}: fleet_days: ")
    assert 0 == main(["rebuild", "--sums"])
    capsys.readouterr()
    assert [] == stats(capsys, 0)["check"]


@pytest.mark.usefixtures("spread")
def test_the_home_alone_is_refused(
    urls: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would say that there is nothing, and that all is well."""
    monkeypatch.setenv("ETT_DATABASE_URL", urls[0])
    assert 2 == main(["stats", "--check"])
    assert "ETT_SHARD_URLS" in capsys.readouterr().err


def stats(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    assert code == main(["stats", "--json", "--check"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def days_of(engine: Any) -> int:
    with engine.connect() as conn:
        return int(conn.exec_driver_sql("SELECT count(*) FROM fleet_days").scalar_one())
