"""Checkpoints on disk: whole or not there, by writing beside and renaming."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from fleet_ett.demo.model import Parameters

_NAME = "step-{:08d}.npz"


def save(folder: Path, step: int, parameters: Parameters) -> int:
    """Keep the state after `step`, durable when this returns; the bytes written."""
    beside = folder / "writing.npz"
    with beside.open("wb") as file:
        np.savez(file, **parameters)  # type: ignore[arg-type] # numpy's stub takes the names for its own options
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    beside.rename(folder / _NAME.format(step))
    return size


def load_newest(folder: Path) -> tuple[int, Parameters] | None:
    """(step, parameters) of the newest checkpoint; None where there is none yet."""
    found = sorted(folder.glob("step-*.npz"))
    if not found:
        return None
    with np.load(found[-1]) as stored:
        return int(found[-1].stem.removeprefix("step-")), {name: stored[name] for name in stored.files}
