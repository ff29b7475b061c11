"""Process start and imports: `process_import` runs from the interpreter's start to the trainer's first act.

A worker of torchrun whose job has a name is recorded from here on, so that a failing import is on record with its
traceback. Everybody else is recorded from the first act on, with the time before it (`session.py`): then the
trainer's own `ett.start(job=...)`, which comes earlier, is the only one.
"""

from __future__ import annotations

import os
import sys

from ett_collector.current import _Current, start
from ett_collector.hooks import registry, session
from ett_collector.hooks.finder import Finder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ett_collector.recorder import Recorder

# programs that are no trainer, whatever their environment says
NOT_TRAINERS = (
    "accelerate",
    "deepspeed",
    "ett-agent",
    "ett-run",
    "ett_collector.agent.main",
    "ett_collector.integrations.torchelastic",
    "ett_collector.run",
    "torch.distributed.launch",
    "torch.distributed.run",
    "torchrun",
)
WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


class _Process:
    is_watched = False


def begin() -> None:
    """Watch the imports of this process, unless one above it is recorded."""
    if _Process.is_watched or not session.is_free() or program(sys.orig_argv) in NOT_TRAINERS:
        return
    _Process.is_watched = True
    _Current.make = _make
    Finder(registry.wanted(), registry.loads, registry.loaded).install()
    if "TORCHELASTIC_RUN_ID" in os.environ and "LOCAL_RANK" in os.environ and _job():
        start()
        recorder = session.live()
        if recorder is not None:
            recorder.importing()


def program(argv: list[str]) -> str:
    """What an interpreter was told to run: a script's or module's name, `-c` for code, empty for neither."""
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word == "-c" or not word.startswith("-"):
            return os.path.basename(word)
        if word in WITH_VALUE:
            next(words, None)
    return ""


def _job() -> str:
    """The job, where the environment names it: the name of a script is only a guess."""
    from ett_collector import identity  # noqa: PLC0415

    return identity.identify(os.environ, script="", process="").job


def _make(*parts: Any) -> Recorder:
    from ett_collector.hooks.watched import Watched  # noqa: PLC0415

    return Watched(*parts)
