"""Schemathesis against the OpenAPI document of a running service: whatever is asked, the answer is a documented one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.http.story import rollback

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.service import Service

# What a schema allows may still be refused, and documented: a cursor of another question, a window that ends before it
# begins. `make fuzz` looks harder. One worker: two threads that compile at once can fail in Python 3.11.
LEFT_OUT = "positive_data_acceptance"
EXAMPLES = os.environ.get("ETT_SCHEMATHESIS_EXAMPLES", "3")


@pytest.fixture(scope="module")
def books(open_service: Service) -> Service:
    """A service that knows a job whose key needs encoding."""
    open_service.book(rollback("prod-a/1/<b>&'\"%2F", node="n1", cluster="prod-a", team="ads"))
    return open_service


def test_every_answer_is_a_documented_one(books: Service, tmp_path: Path) -> None:
    """No 500; only documented statuses, content types and shapes; what the schema forbids is refused."""
    url = books.client.base_url.join("/openapi.json")
    command = ["schemathesis.cli", "run", str(url), "--no-color", "--seed", "1"]
    wanted = ["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES]
    checks = ["--checks", "all", "--exclude-checks", LEFT_OUT, "--warnings", "off"]
    done = subprocess.run(
        [sys.executable, "-m", *command, *wanted, *checks],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    assert "17" in done.stdout.partition("Tested:")[2].partition("\n")[0]
