"""Stamps in a query: RFC 3339 with a zone, or integer nanoseconds; nothing is guessed."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from fleet_ett.errors import Invalid

EXPECTED = "RFC 3339 with a zone (2026-03-02T12:00:00Z) or integer nanoseconds since the epoch"
END_NS = 2**63
SECOND_NS = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# A plus that was not percent-encoded arrives as a space: the zone accepts it.
RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:([Zz])|([+ -])(\d\d):(\d\d))",
    re.ASCII,
)


def parse_stamp(name: str, text: str) -> int:
    """The stamp in ns. Raises `Invalid` that names the parameter and says what is expected."""
    text = text.strip()
    if re.fullmatch(r"[+-]?\d{1,20}", text, re.ASCII):
        return _in_range(name, int(text))
    match = RFC3339.fullmatch(text)
    if match is None:
        msg = f"{name} must be {EXPECTED}, not {text[:60]!r}"
        raise Invalid(msg)
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    leap = second == 60
    try:
        at = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=timezone.utc)
        offset = _offset(match)
    except ValueError as error:
        msg = f"{name} is no date and time: {error}; expected {EXPECTED}"
        raise Invalid(msg) from None
    since = at - EPOCH - offset
    fraction = int((match[7] or "").ljust(9, "0"))
    return _in_range(name, (since.days * 86_400 + since.seconds + leap) * SECOND_NS + fraction)


def format_stamp(ns: int) -> str:
    """RFC 3339 in UTC, with as many digits as the stamp has."""
    seconds, fraction = divmod(ns, SECOND_NS)
    text = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{text}{digits}Z"


def _offset(match: re.Match[str]) -> timedelta:
    if match[8]:
        return timedelta(0)
    hours, minutes = int(match[10]), int(match[11])
    if hours > 23 or minutes > 59:
        msg = "the zone must be within 23:59"
        raise ValueError(msg)
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if match[9] == "-" else offset


def _in_range(name: str, ns: int) -> int:
    if not 0 <= ns < END_NS:
        msg = f"{name} lies outside 1970 to 2262; expected {EXPECTED}"
        raise Invalid(msg)
    return ns
