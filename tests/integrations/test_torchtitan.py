"""torchtitan's trainer (on a CPU, see `train_torchtitan.py`), killed between two checkpoints and resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integrations.conftest import HERE

if TYPE_CHECKING:
    from tests.integrations.conftest import Books, Stage

pytestmark = pytest.mark.integrations
pytest.importorskip("torchtitan")

TRAIN = str(HERE / "train_torchtitan.py")
HANDLER = {"TITAN_STRUCT_LOGGER_HANDLERS": "ett_collector.integrations.torchtitan.handler"}
STEPS, SAVE_EVERY, KILL_AFTER = 12, 4, 7  # of train_torchtitan.py


@pytest.fixture(scope="module")
def books(stage: Stage) -> Books:
    return stage.killed_and_resumed("torchtitan", TRAIN, **HANDLER)


def test_replay(books: Books) -> None:
    """The steps since the last checkpoint are done again."""
    books.check_replay(killed_at=KILL_AFTER, saved_at=KILL_AFTER // SAVE_EVERY * SAVE_EVERY, steps=STEPS)


def test_phases(books: Books) -> None:
    """Saves, the load, and the start-up have names of their own; the step in flight was cut off."""
    books.check_checkpoints()
    for attempt in (0, 1):
        assert {"process_group_init", "model_build", "plugin_init", "data_warmup"} <= books.phases(attempt)
    assert books.by_phase[0, "step_aborted"] + books.by_phase.get((0, "data_stall"), 0) > 0
    assert 3 == books.detail["metrics"]["checkpoint_saves"]


def test_asynchronous_saves(stage: Stage) -> None:
    """The checkpoint counts from when it is written, and writing goes on beside the steps."""
    books = stage.killed_and_resumed("torchtitan-async", TRAIN, TEST_ASYNC_MODE="async", **HANDLER)

    assert books.detail["overlapped"]["checkpoint_save_async"] > 0
    assert books.detail["attempts"][1]["loaded_step"] == books.detail["attempts"][0]["durable_step"]
