"""torchtitan's own `main()` on a CPU: its debug model with random tokens, and SIGKILL between two saves, once.

torchtitan knows GPUs alone. What it asks of one is answered here: its Triton kernels are not imported, the device
is `torch.cpu`, nobody counts device memory, and attention is torch's instead of FlexAttention.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import torch

sys.modules["torchtitan.distributed.minimal_async_ep.kernels"] = MagicMock()
import torchtitan.tools.utils  # noqa: E402

torchtitan.tools.utils.device_type, torchtitan.tools.utils.device_module = "cpu", torch.cpu

import torchtitan.train  # noqa: E402
from torchtitan.components import metrics  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel_ce_loss  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchtitan.trainer import Trainer

STEPS, SAVE_EVERY, KILL_AFTER = 12, 4, 7
FOLDER = Path(os.environ["TEST_FOLDER"])


class NoMemory(metrics.DeviceMemoryMonitor):
    """The memory of no device."""

    device_name = "cpu"

    def __init__(self) -> None:
        """Ask no device."""

    def get_peak_stats(self) -> metrics.DeviceMemStats:
        return metrics.DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

    def reset_peak_stats(self) -> None:
        """Nothing was counted."""


class NoTokenizer(BaseTokenizer):
    """Nothing is text here."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """No settings."""

    def __init__(self, config: Config, **_kwargs: Any) -> None:  # noqa: ARG002
        super().__init__()

    def encode(self, *_args: Any, **_kwargs: Any) -> list[int]:
        return []

    def decode(self, *_args: Any, **_kwargs: Any) -> str:
        return ""

    def get_vocab_size(self) -> int:
        return 2048


class RandomTokens(BaseDataLoader):
    """Batches by their number; kills the process once instead of giving one."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """No settings of its own."""

    def __init__(self, *, seq_len: int, local_batch_size: int, **_kwargs: Any) -> None:
        self.shape = (local_batch_size, seq_len + 1)
        self.number = 0

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            once = FOLDER / "killed"
            if self.number == KILL_AFTER and not once.exists():
                once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            self.number += 1
            tokens = torch.randint(2048, self.shape, generator=torch.Generator().manual_seed(self.number))
            positions = torch.arange(self.shape[1] - 1).expand(self.shape[0], -1)
            yield {"input": tokens[:, :-1], "positions": positions}, tokens[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.number = state_dict["number"]


def tiny() -> Trainer.Config:
    """The debug model, smaller still."""
    config = llama3_debugmodel_ce_loss()
    model = config.model_spec.model
    model.layers = model.layers[:1]
    for layer in model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    config.tokenizer = NoTokenizer.Config()
    config.dataloader = RandomTokens.Config()
    config.training.steps, config.training.seq_len, config.training.local_batch_size = STEPS, 32, 2
    config.training.disable_cuda_graphs = True
    config.checkpoint.enable, config.checkpoint.interval = True, SAVE_EVERY
    config.checkpoint.async_mode = os.environ.get("TEST_ASYNC_MODE", "disabled")
    config.validator.enable = False
    config.dump_folder = str(FOLDER / "dump")
    return config


def main() -> None:
    """As `torchrun -m torchtitan.train --module ... --config tiny` would."""
    torchtitan.distributed.utils.set_pg_timeouts = MagicMock()  # a barrier on a device
    metrics.build_device_memory_monitor = NoMemory
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    sys.argv[1:] = ["--module", Path(__file__).stem, "--config", "tiny"]
    torchtitan.train.main()


if __name__ == "__main__":
    main()
