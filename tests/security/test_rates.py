"""Requests a second by token: what one process counts, all others know."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from fleet_ett.access import FRESH_S, Grant
from fleet_ett.errors import Busy
from fleet_ett.rates import GROUP_BYTES, GROUPS, Rates
from tests.security.bearers import Tokens, id_of
from tests.security.processes import serving

if TYPE_CHECKING:
    from pathlib import Path

ASK = """
import sys
from pathlib import Path
from fleet_ett.access import Grant
from fleet_ett.errors import Busy
from fleet_ett.rates import Rates

rates, taken = Rates(Path(sys.argv[1]), clock=lambda: 100.0), 0
for _ in range(1000):
    try:
        rates.take(Grant("a", "n", "read", rate=500))
        taken += 1
    except Busy:
        pass
print(taken)
"""


def test_several_processes_count_together(tmp_path: Path) -> None:
    """Four at once take exactly what one token may, while the clock stands still."""
    command = [sys.executable, "-c", ASK, str(tmp_path / "rates")]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert 500 == sum(int(one.communicate()[0]) for one in asking)
    assert GROUP_BYTES * GROUPS == (tmp_path / "rates").stat().st_size


def test_two_services_share_a_rate_and_a_revocation(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over real HTTP, two processes on one database: as many requests as one may have, and then none."""
    tokens = Tokens(database_url, capsys)
    header = tokens.create("--scope", "read", "--all", "--rate", "10")
    told = {"ETT_DATABASE_URL": database_url, "ETT_ATTRIBUTION_WORKERS": "0"}
    with serving(told) as one, serving(told) as other:
        began, taken = time.monotonic(), 0
        with httpx.Client(headers=header, timeout=60) as client:
            for _ in range(50):
                taken += sum(200 == client.get(f"{url}/docs").status_code for url in (one, other))
            assert 10 <= taken <= 10 + 10 * (time.monotonic() - began)
            tokens.run("revoke", id_of(header))
            time.sleep(FRESH_S)
            assert [401, 401] == [client.get(f"{url}/docs").status_code for url in (one, other)]


def test_a_rate_is_refilled_and_says_when() -> None:
    now = 1000.0
    rates = Rates(clock=lambda: now)
    slow = Grant("slow", "n", "read", rate=1)
    rates.take(slow)
    with pytest.raises(Busy) as told:
        rates.take(slow)
    assert 1 == told.value.retry_after_s
    rates.take(Grant("other", "n", "read", rate=1))
    now += 1
    rates.take(slow)
    now = 5.0  # the machine was started again
    rates.take(slow)


def test_more_tokens_than_slots_are_counted_too() -> None:
    """The bucket that rests longest makes room; nobody is refused for others."""
    rates = Rates(clock=lambda: 100.0)
    for number in range(70_000):
        rates.take(Grant(f"{number}", "n", "read", rate=1))


def test_a_rate_of_zero_is_no_limit() -> None:
    rates = Rates(clock=lambda: 100.0)
    for _ in range(10):
        rates.take(Grant("free", "n", "read", rate=0))
