"""A tiny Llama in the real Trainer: checkpoints and evaluations, and SIGKILL between two of them, once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import torch
from ett_collector.integrations.huggingface import EttCallback

STEPS, SAVE_EVERY, KILL_AFTER = 12, 4, 7
FOLDER = Path(os.environ["TEST_FOLDER"])


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random tokens, the same whenever they are asked for."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Kill(TrainerCallback):
    """Kills the process once."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        once = FOLDER / "killed"
        if state.global_step == KILL_AFTER and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main(batch: int) -> None:
    """Train from the last checkpoint, where there is one."""
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    arguments = TrainingArguments(
        output_dir=str(FOLDER / "out"),
        max_steps=STEPS,
        save_steps=SAVE_EVERY,
        eval_strategy="steps",
        eval_steps=SAVE_EVERY,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=2,
        use_cpu=True,
        report_to=[],
    )
    data = Tokens()
    trainer = Trainer(
        LlamaForCausalLM(config),
        arguments,
        train_dataset=data,
        eval_dataset=data,
        callbacks=[EttCallback(), Kill()],
    )
    last = get_last_checkpoint(arguments.output_dir) if Path(arguments.output_dir).exists() else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main(int(sys.argv[1]))
