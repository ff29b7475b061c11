"""One line of the doctor's."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Line:
    """What was looked at, how it is (ok, warn, fail), what was seen, and what to do."""

    check: str
    status: str
    said: str
    do: str = ""


def size(number: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
