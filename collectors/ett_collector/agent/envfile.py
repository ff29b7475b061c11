"""A file of settings, `NAME=value` lines as systemd's `EnvironmentFile`: it can be read again while the agent runs."""

from __future__ import annotations

COMMENTS = ("#", ";")
QUOTES = ("'", '"')


def parse_env_file(text: str) -> dict[str, str]:
    """The settings of a file. Raises `ValueError` that names the line which is none."""
    found: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith(COMMENTS):
            continue
        name, is_one, value = line.partition("=")
        if not is_one or not name.isidentifier():
            msg = f"line {number} is not NAME=value: {line[:60]!r}"
            raise ValueError(msg)
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in QUOTES:
            value = value[1:-1]
        found[name] = value
    return found


def read_env_file(path: str) -> dict[str, str]:
    """The settings in a file. Raises `OSError` and `ValueError`."""
    with open(path, encoding="utf-8") as file:
        return parse_env_file(file.read())
