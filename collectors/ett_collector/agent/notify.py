"""Telling systemd how the agent is (`Type=notify`, `WatchdogSec`): a datagram to the socket that it named."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Notifier:
    """Says nothing where nobody asked (`NOTIFY_SOCKET` is not set)."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]  # an abstract one
        period = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self._every_s = int(period) / 2e6 if period.isdigit() and is_ours else None
        self._at = 0.0

    def ready(self, status: str) -> None:
        """The agent works, also again after a reload."""
        self._say(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Settings are being read again."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The end has begun."""
        self._say("STOPPING=1\nSTATUS=sends what is left")

    def alive(self) -> None:
        """To be called in every cycle: feeds the watchdog as often as it asked for."""
        if self._every_s is not None and time.monotonic() >= self._at:
            self._at = time.monotonic() + self._every_s
            self._say("WATCHDOG=1")

    def _say(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.settimeout(1.0)
                line.sendto(text.encode(), self._address)
        except OSError:
            return
