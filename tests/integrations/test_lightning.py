"""Lightning's Trainer, killed between two checkpoints and resumed; one that raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integrations.conftest import HERE

if TYPE_CHECKING:
    from tests.integrations.conftest import Books, Stage

pytestmark = pytest.mark.integrations
pytest.importorskip("lightning.pytorch")

TRAIN = str(HERE / "train_lightning.py")
STEPS, SAVE_EVERY, KILL_AFTER = 12, 4, 7  # of train_lightning.py


@pytest.fixture(scope="module", params=["lightning.pytorch", "pytorch_lightning"])
def books(stage: Stage, request: pytest.FixtureRequest) -> Books:
    return stage.killed_and_resumed(request.param, TRAIN, request.param)


def test_replay(books: Books) -> None:
    """The steps since the last checkpoint are done again: two batches of 8 each."""
    saved_at = KILL_AFTER // SAVE_EVERY * SAVE_EVERY
    books.check_replay(killed_at=KILL_AFTER, saved_at=saved_at, steps=STEPS, batch=2 * 8)


def test_phases(books: Books) -> None:
    """Saves, the load, validations and waits have names of their own; the step in flight was cut off."""
    books.check_checkpoints()
    assert books.by_phase[0, "step_aborted"] > 0
    for attempt in (0, 1):
        assert {"evaluation", "data_warmup", "data_stall", "plugin_init"} <= books.phases(attempt)


def test_asynchronous_saves(stage: Stage) -> None:
    """Writing goes on beside the steps, and the checkpoint counts from when it is written."""
    books = stage.killed_and_resumed("lightning-async", TRAIN, "lightning.pytorch", "async")

    assert books.detail["overlapped"]["checkpoint_save_async"] > 0
    assert books.detail["attempts"][1]["loaded_step"] == books.detail["attempts"][0]["durable_step"]


def test_exception(stage: Stage) -> None:
    """The words of the exception are the evidence."""
    stage.run("lightning-raise", TRAIN, "lightning.pytorch", "raise", status=1)
    (incident,) = stage.books("lightning-raise", attempts=1, outcome="failed").detail["incidents"]

    assert "user_code_exception" == incident["cause"]
    assert "ArithmeticError: the loss is a lie" in incident["evidence"][0]["text"]
