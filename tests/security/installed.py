"""Is what is installed here what the lock file says? `python -m tests.security.installed LOCK`."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.security.locked import read_lock


def differences(lock: Path) -> list[str]:
    """What is missing here or of another version."""
    out = []
    for pin in read_lock(lock):
        if not pin.holds():
            continue
        try:
            found = version(pin.name).removeprefix("v")  # grafana-foundation-sdk says so of itself
        except PackageNotFoundError:
            found = "missing"
        if found != pin.version:
            out.append(f"{pin.name}: locked {pin.version}, {found}")
    return out


if __name__ == "__main__":
    wrong = differences(Path(sys.argv[1]))
    print("\n".join(wrong) or f"what is installed is what {sys.argv[1]} says")
    sys.exit(bool(wrong))
