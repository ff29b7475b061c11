"""torchrun with restarts: attempts from its events, and the words of its error files as evidence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ett_collector.integrations import torchelastic
from tests.integrations.conftest import HERE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integrations.conftest import Books, Stage

pytestmark = pytest.mark.integrations
pytest.importorskip("torch")

TRAIN = str(HERE / "train_torchelastic.py")
STEPS, SAVE_EVERY, FAIL_AFTER = 12, 4, 7  # of train_torchelastic.py
OPTIONS = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "2")


@pytest.fixture(scope="module")
def books(stage: Stage) -> Books:
    command = ("-m", "ett_collector.integrations.torchelastic", *OPTIONS, TRAIN)
    stage.run("torchelastic", *command, status=0)
    return stage.books("torchelastic", attempts=3)


def test_restarts_are_attempts(books: Books) -> None:
    """Also the one that failed before anything was recorded in it; the hardware was kept."""
    first, second, third = books.detail["attempts"]

    assert ["failed", "failed", "completed"] == [one["outcome"] for one in (first, second, third)]
    assert [f"{first['attempt']}/r1", f"{first['attempt']}/r2"] == [second["attempt"], third["attempt"]]
    assert books.detail["wall_ns"] == sum(books.detail["headings"].values())
    for attempt in (0, 1, 2):
        assert books.by_phase[attempt, "rendezvous"] > 0


def test_error_files_are_the_evidence(books: Books) -> None:
    """The worker that raised is blamed, by its own words, and not the one that torchrun ended after it."""
    first, second = sorted(books.detail["incidents"], key=lambda one: one["at"])

    assert first["evidence"][0]["text"].startswith("ValueError: bad shard 7")
    assert ("user_code_exception", 1) == (first["cause"], first["rank"])
    assert second["evidence"][0]["text"].startswith("FileNotFoundError: no such tokenizer")
    assert "user_code_exception" == second["cause"]


def test_replay(books: Books) -> None:
    """The steps since the last save are done again, two attempts later."""
    assert FAIL_AFTER - FAIL_AFTER // SAVE_EVERY * SAVE_EVERY == books.detail["steps"]["replayed"]
    assert STEPS == books.detail["steps"]["productive"]
    assert [None, None, SAVE_EVERY] == [one["loaded_step"] for one in books.detail["attempts"]]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"message": "plain words"}, "plain words"),
        (
            {"message": {"message": "E: x", "extraInfo": {"py_callstack": "at y", "timestamp": "7"}}},
            "E: x\nat y",
        ),
        ({"message": {"message": "E: x", "errorCode": 3, "extraInfo": None}}, "E: x"),
        ({"message": None}, None),
        ({"message": {"extraInfo": {}}}, None),
        ([1], None),
    ],
)
def test_error_file(tmp_path: Path, said: object, expected: str | None) -> None:
    """All that torchelastic has written into such a file, and what it has not."""
    path = tmp_path / "error.json"
    path.write_text(json.dumps(said))

    assert expected == torchelastic.error_text(str(path))
