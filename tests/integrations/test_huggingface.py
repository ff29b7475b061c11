"""Hugging Face's Trainer, killed between two checkpoints and resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integrations.conftest import HERE, SIGKILLED

if TYPE_CHECKING:
    from tests.integrations.conftest import Books, Stage

pytestmark = pytest.mark.integrations
pytest.importorskip("transformers")

TRAIN = str(HERE / "train_huggingface.py")
STEPS, SAVE_EVERY, KILL_AFTER = 12, 4, 7  # of train_huggingface.py


@pytest.fixture(scope="module")
def books(stage: Stage) -> Books:
    return stage.killed_and_resumed("huggingface", TRAIN, "4")


def test_replay(books: Books) -> None:
    """The steps since the last checkpoint are done again: two batches of 4 each."""
    saved_at = KILL_AFTER // SAVE_EVERY * SAVE_EVERY
    books.check_replay(killed_at=KILL_AFTER, saved_at=saved_at, steps=STEPS, batch=2 * 4)


def test_phases(books: Books) -> None:
    """Saves, the load, evaluations and waits have names of their own."""
    books.check_checkpoints()
    for attempt in (0, 1):
        assert {"evaluation", "data_warmup", "data_stall", "model_build"} <= books.phases(attempt)


def test_another_batch_size(stage: Stage) -> None:
    """Half the batch after the restart: twice the steps, and the checkpoint knows the samples, so no more replay."""
    stage.run("huggingface-resized", TRAIN, "4", status=SIGKILLED)
    stage.run("huggingface-resized", TRAIN, "2", status=0)
    books = stage.books("huggingface-resized", attempts=2)

    lost = (KILL_AFTER - SAVE_EVERY) * 8
    assert SAVE_EVERY == books.detail["attempts"][1]["loaded_step"]
    assert lost == books.detail["metrics"]["samples_replayed"]
    assert lost // 4 == books.detail["attempts"][1]["steps_replayed"]
