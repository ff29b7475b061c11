"""The real programs of Prometheus and Alertmanager."""

from __future__ import annotations

import shutil


def program(*names: str) -> str:
    """The path of a program by the first of its names that there is. Raises with what to do; it is never skipped."""
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        msg = f"no {names[0]} on PATH: make prometheus"
        raise FileNotFoundError(msg)
    return found
