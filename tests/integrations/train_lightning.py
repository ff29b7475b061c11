"""A tiny module in the real Lightning Trainer: saves and validations, and SIGKILL between two saves, once."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, TensorDataset

import torch
from torch import nn

pl = importlib.import_module(sys.argv[1])  # lightning.pytorch or pytorch_lightning

from ett_collector.integrations.lightning import EttCallback  # noqa: E402 - of the Lightning that is imported

EPOCHS, STEPS, SAVE_EVERY, KILL_AFTER = 2, 12, 4, 7
ACCUMULATE, BATCH = 2, 8
FOLDER = Path(os.environ["TEST_FOLDER"])


class Module(pl.LightningModule):
    """A linear regression."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], _batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = (self.layer(batch[0]) - batch[1]).square().mean()
        if "raise" in sys.argv:
            msg = "the loss is a lie"
            raise ArithmeticError(msg)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _batch_idx: int) -> None:
        self.log("error", (self.layer(batch[0]) - batch[1]).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Kill(pl.Callback):
    """Kills the process once."""

    def on_train_batch_start(self, trainer: Any, *_args: Any) -> None:
        once = FOLDER / "killed"
        if trainer.global_step == KILL_AFTER and not once.exists():
            once.touch()
            if "async" in sys.argv:
                trainer.strategy.checkpoint_io.teardown()  # waits for what is being written
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train from the last checkpoint, where there is one."""
    dice = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(96, 4, generator=dice), torch.randn(96, 1, generator=dice))
    saves = {"every_n_train_steps": SAVE_EVERY, "save_last": True}
    plugins = [pl.plugins.io.AsyncCheckpointIO()] if "async" in sys.argv else None
    trainer = pl.Trainer(
        max_steps=STEPS,
        accumulate_grad_batches=ACCUMULATE,
        callbacks=[EttCallback(), pl.callbacks.ModelCheckpoint(FOLDER / "saved", **saves), Kill()],
        default_root_dir=FOLDER,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        plugins=plugins,
    )
    loader = DataLoader(data, batch_size=BATCH)
    last = FOLDER / "saved" / "last.ckpt"
    trainer.fit(Module(), loader, loader, ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
