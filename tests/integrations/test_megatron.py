"""A Megatron-style loop with megatron-core's own timers, killed between two checkpoints and resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integrations.conftest import HERE

if TYPE_CHECKING:
    from tests.integrations.conftest import Books, Stage

pytestmark = pytest.mark.integrations
pytest.importorskip("megatron.core")

TRAIN = str(HERE / "train_megatron.py")
STEPS, SAVE_EVERY, KILL_AFTER, BATCH = 12, 4, 7, 8  # of train_megatron.py


@pytest.fixture(scope="module", params=["sync", "async"])
def books(stage: Stage, request: pytest.FixtureRequest) -> Books:
    return stage.killed_and_resumed(f"megatron-{request.param}", TRAIN, request.param)


def test_replay(books: Books) -> None:
    """The iterations since the last checkpoint are done again."""
    saved_at = KILL_AFTER // SAVE_EVERY * SAVE_EVERY
    books.check_replay(killed_at=KILL_AFTER, saved_at=saved_at, steps=STEPS, batch=BATCH)


def test_phases(books: Books) -> None:
    """What the timers time has names of its own, whatever their log level; the step in flight was cut off."""
    books.check_checkpoints()
    assert books.by_phase[0, "step_aborted"] > 0
    assert {"evaluation", "data_stall", "model_build"} <= books.phases(0)
    assert 3 == books.detail["metrics"]["checkpoint_saves"]
    written = books.detail["overlapped"].get("checkpoint_save_async", 0)
    assert (books.detail["job"] == "megatron-async") == (written > 0)
