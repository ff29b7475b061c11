"""One line of a file as one JSON object, strictly: what JSON does not know (NaN, Infinity) is refused."""

from __future__ import annotations

import json
from typing import NoReturn


def parse_line(line: bytes | str) -> object:
    """The JSON value of the line. Raises ValueError with a reason that names no position in the file."""
    try:
        text = line.decode() if isinstance(line, bytes) else line
    except UnicodeDecodeError:
        msg = "not UTF-8"
        raise ValueError(msg) from None
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        msg = f"not JSON: {error.msg}"
        raise ValueError(msg) from None
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


def _refuse(constant: str) -> NoReturn:
    msg = f"{constant} is not a number of JSON"
    raise ValueError(msg)
