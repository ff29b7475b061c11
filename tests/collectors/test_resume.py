"""Which step a loaded state is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ett_collector.hooks import resume
from ett_collector.hooks.process_start import program

ADAM = {"state": {0: {"step": 40.0}, 1: {"step": 41}}, "param_groups": []}
WEIGHTS = {"layer.weight": type("Tensor", (), {"shape": (1,)})()}


@pytest.mark.parametrize(
    ("content", "step"),
    [
        ({"model": WEIGHTS, "global_step": 120}, 120),
        ({"iter_num": 7, "step": True}, 7),
        ({"train_state": {"step": 9}}, 9),
        ({"optimizer": {"state": {}, "param_groups": [], "step": 3}}, None),  # not the trainer's word
        ({"epoch": 3}, None),
        ({"step": -1}, None),
        ({"step": 1.5}, None),
        ({}, None),
    ],
)
def test_step_by_an_entry(content: dict[str, Any], step: int | None) -> None:
    """By the names that frameworks use, at the top or one level below."""
    assert step == resume.entry(content)


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/c/step-000040", 40),
        ("/c/epoch=3-step=500.ckpt", 500),
        ("/c/iter_0001000/", 1000),
        (Path("/c/global_step12/model.pt"), 12),
        ("/runs/step-9/a/b/last.pt", None),
        ("/c/checkpoint-3", None),  # an epoch, as likely
        (None, None),
        (b"step-1", None),
    ],
)
def test_step_by_a_path(path: object, step: int | None) -> None:
    """Only a number that is called a step or an iteration."""
    assert step == resume.number_in(path)


def test_step_by_an_optimizer() -> None:
    """The furthest of its parameters; none that keeps no count."""
    assert 41 == resume.steps_of(ADAM["state"].values())
    assert None is resume.steps_of([{"momentum_buffer": 1}, {}])


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ({"model": WEIGHTS}, True),
        (WEIGHTS, True),
        ({"optimizer": ADAM}, True),
        ({"weights": [1, 2]}, False),
        ({"x": WEIGHTS["layer.weight"]}, False),  # a data set
        ([WEIGHTS], False),
    ],
)
def test_what_is_a_checkpoint(value: object, is_one: bool) -> None:  # noqa: FBT001
    """What holds the state of a model or an optimizer."""
    assert is_one == resume.is_checkpoint(value)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "/opt/bin/torchrun", "train.py"], "torchrun"),
        (["python", "-X", "dev", "-m", "torch.distributed.run", "x"], "torch.distributed.run"),
        (["python", "-u", "train.py", "-m"], "train.py"),
        (["python", "-c", "pass"], "-c"),
        (["python"], ""),
    ],
)
def test_what_an_interpreter_runs(argv: list[str], name: str) -> None:
    """So that no launcher is taken for a trainer."""
    assert name == program(argv)
