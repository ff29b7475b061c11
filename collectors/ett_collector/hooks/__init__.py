"""Recording without a line in the trainer: `ETT_AUTO=1`, which `ett-run` sets.

A finder (`finder.py`) watches imports and applies a hook once the module that it belongs to was executed; a
process that imports no framework pays for nothing but a look at each name. Hooks are rows (`registry.py`), one
file each. A hook that fails does so alone: the trainer goes on as if it were not there, and the agent's log says
which one it was. What the trainer says itself (`ett.start`, `ett.step`, a phase) goes before what hooks see
(`watched.py`).
"""

from __future__ import annotations

import os

OFF = ("", "0")


def is_wanted() -> bool:
    """Whether this process is to be recorded without its own doing."""
    environ = os.environ
    return environ.get("ETT_AUTO", "0") not in OFF and environ.get("ETT_DISABLE", "0") in OFF


def activate() -> None:
    """Begin to watch imports, once in a process. Called when the interpreter starts; never raises."""
    try:
        if is_wanted():
            from ett_collector.hooks import process_start  # noqa: PLC0415 - nothing for those who do not ask

            process_start.begin()
    except Exception:  # noqa: BLE001 - whatever it is, the interpreter starts
        return
