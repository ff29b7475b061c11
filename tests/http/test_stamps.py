"""Stamps in a query."""

from __future__ import annotations

import pytest

from fleet_ett.errors import Invalid
from fleet_ett.http.stamps import format_stamp, parse_stamp

T0 = 1_772_452_800_000_000_000  # 2026-03-02T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-02T12:00:00Z", T0),
        ("2026-03-02t12:00:00z", T0),
        ("2026-03-02 12:00:00Z", T0),
        ("2026-03-02T13:00:00+01:00", T0),
        ("2026-03-02T13:00:00 01:00", T0),  # a plus that was not percent-encoded
        ("2026-03-02T06:30:00-05:30", T0),
        ("2026-03-02T12:00:00.000000001Z", T0 + 1),
        ("2026-03-02T12:00:00.5Z", T0 + 500_000_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000_000_000),  # a leap second is the next second's start
        (str(T0), T0),
        ("0", 0),
    ],
)
def test_a_stamp_is_exact_to_the_nanosecond(text: str, expected: int) -> None:
    """RFC 3339 with any zone, or integer nanoseconds."""
    assert expected == parse_stamp("from", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "yesterday",
        "2026-03-02",
        "2026-03-02T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-03-02T25:00:00Z",
        "2026-03-02T12:00:00+99:00",
        "1.5",
        "1e18",
        "-1",
        "9223372036854775808",
        "9" * 500,
        "NaN",
        "2026-03-02T12:00:00Z\0",
        "\u0662\u0660\u0662\u0666-03-02T12:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_anything_else_is_refused_and_told_what_is_expected(text: str) -> None:
    """A naive stamp, a float, words, and moments that 64 bits of nanoseconds cannot hold."""
    with pytest.raises(Invalid, match=r"from .*expected|from must be RFC 3339 with a zone"):
        parse_stamp("from", text)


def test_a_stamp_reads_back() -> None:
    """`format_stamp` writes what `parse_stamp` reads."""
    assert "2026-03-02T12:00:00Z" == format_stamp(T0)
    assert T0 + 7 == parse_stamp("to", format_stamp(T0 + 7))
