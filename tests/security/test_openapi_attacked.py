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
    from tests.security.bearers import Tokens

# What a schema allows may still be refused, and documented: a cursor of another question, a window that ends before it
# begins. `make fuzz` looks harder. One worker: two threads that compile at once can fail in Python 3.11.
LEFT_OUT = "positive_data_acceptance"
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "3")
WITH_TOKENS = "examples,coverage,fuzzing" if "SCHEMATHESIS_EXAMPLES" in os.environ else "examples"


@pytest.fixture(scope="module")
def books(open_service: Service) -> Service:
    """A service that knows a job whose key needs encoding."""
    open_service.book(rollback("prod-a/1/<b>&'\"%2F", node="n1", cluster="prod-a", team="ads"))
    return open_service


def attack(url: str, folder: Path, phases: str, *more: str) -> None:
    """Fail with what schemathesis says where an answer is not as documented."""
    command = [
        "schemathesis.cli",
        "run",
        f"{url}/openapi.json",
        "--no-color",
        "--seed",
        "1",
        "--phases",
        phases,
    ]
    checks = [
        "--checks",
        "all",
        "--exclude-checks",
        LEFT_OUT,
        "--warnings",
        "off",
        "--max-examples",
        EXAMPLES,
    ]
    done = subprocess.run(
        [sys.executable, "-m", *command, *checks, *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout


def test_every_answer_is_a_documented_one(books: Service, tmp_path: Path) -> None:
    """No 500; only documented statuses, content types and shapes; what the schema forbids is refused."""
    attack(str(books.client.base_url), tmp_path, "examples,coverage,fuzzing")


@pytest.mark.parametrize("scope", [("--scope", "admin"), ("--scope", "read", "--team", "ads")])
def test_every_answer_to_a_token_is_a_documented_one(
    service: Service, tokens: Tokens, tmp_path: Path, scope: tuple[str, ...]
) -> None:
    """Also what it may not ask; and without it nothing is answered."""
    header = tokens.create(*scope, "--rate", "0")["Authorization"]
    attack(str(service.client.base_url), tmp_path, WITH_TOKENS, "-H", f"Authorization: {header}")
