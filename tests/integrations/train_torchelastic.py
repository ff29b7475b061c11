"""Workers for torchrun that fail twice: in a step, without a word to the recorder; and before the recorder starts."""

from __future__ import annotations

import os
import time
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record

import ett_collector as ett

STEPS, SAVE_EVERY, FAIL_AFTER = 12, 4, 7
FOLDER = Path(os.environ["TEST_FOLDER"])
RANK, RESTARTS = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def meet(step: int) -> None:
    """Wait for the other worker."""
    (FOLDER / f"at-{step}-{RESTARTS}-{RANK}").touch()
    while len(list(FOLDER.glob(f"at-{step}-{RESTARTS}-*"))) < 2:
        time.sleep(0.01)


@record
def main() -> None:
    """Steps from the last checkpoint on."""
    if RESTARTS == 1:
        msg = "no such tokenizer"
        raise FileNotFoundError(msg)
    ett.start()
    saved = FOLDER / "saved"
    step = int(saved.read_text()) if saved.exists() else 0
    meet(step)
    if step:
        with ett.phase("checkpoint_load"):
            time.sleep(0.02)
        ett.checkpoint_loaded(step)
    ett.step_begin(step + 1)
    for n in range(step + 1, STEPS + 1):
        time.sleep(0.02)
        ett.step(n)
        if n % SAVE_EVERY == 0 and RANK == 0:
            with ett.phase("checkpoint_save_block", step=n):
                saved.write_text(str(n))
            ett.checkpoint_committed(n)
        if RESTARTS == 0 and n == FAIL_AFTER:
            meet(n)  # torchrun soon ends the other one, wherever it is
            if RANK == 1:
                msg = "bad shard 7"
                raise ValueError(msg)
            time.sleep(60)  # as in a collective: torchrun ends this one
    ett.end()


if __name__ == "__main__":
    try:
        main()
    except ValueError:
        os._exit(3)
