"""Events that the service will never take: kept for a human, in a bounded file, so that the rest goes on."""

from __future__ import annotations

import json
import os
from typing import Any

LIMIT_BYTES = 8 * 1024 * 1024


class DeadLetters:
    """Appends to `dead-letters.jsonl`, keeping one older file (`.1`). `count`: since this agent began."""

    def __init__(self, folder: str, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = os.path.join(folder, "dead-letters.jsonl")
        self.count = 0
        self._limit_bytes = limit_bytes

    def put(self, event: dict[str, Any], incarnation: str, reason: str, at: int) -> None:
        """Keep an event (`at`: wall ns now). A disk that takes nothing costs the copy, not the agent."""
        self.count += 1
        line = json.dumps({"at": at, "reason": reason, "incarnation": incarnation, "event": event})
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line + "\n")
                full = file.tell() > self._limit_bytes
            if full:
                os.replace(self.path, self.path + ".1")
        except OSError:
            return
