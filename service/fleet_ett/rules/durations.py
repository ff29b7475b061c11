"""Durations as Prometheus writes them: `90s`, `5m`, `1h30m`, `7d`."""

from __future__ import annotations

import re

from fleet_ett.errors import Invalid

UNITS_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_SHAPE = re.compile(r"(?:\d+[wdhms])+")


def seconds(text: object, where: str) -> int:
    """The seconds of a duration. Raises `Invalid` naming `where`, also for a duration of nothing."""
    if isinstance(text, str) and len(text) < 20 and _SHAPE.fullmatch(text):
        length = sum(int(number) * UNITS_S[unit] for number, unit in re.findall(r"(\d+)([wdhms])", text))
        if length:
            return length
    msg = f"{where}: a duration such as 5m, 6h or 7d, not {text!r}"
    raise Invalid(msg)


def duration(length_s: int) -> str:
    """The shortest writing, in one unit up to days: 86400 s are `1d`, 5400 s are `90m`."""
    unit = next(unit for unit in "dhms" if length_s % UNITS_S[unit] == 0)
    return f"{length_s // UNITS_S[unit]}{unit}"
