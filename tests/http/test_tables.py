"""Rows as CSV."""

from __future__ import annotations

import csv
import io
import json

import pytest

from fleet_ett.http.tables import as_csv, wants_csv


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_a_cell_that_a_spreadsheet_would_run_gets_an_apostrophe(sign: str) -> None:
    """Text only: a negative number stays a number."""
    text = as_csv(["job", "offset"], [{"job": f"{sign}cmd|' /C calc'!A0", "offset": -5}])
    header, row = csv.reader(io.StringIO(text, newline=""))
    assert ["job", "offset"] == header
    assert [f"'{sign}cmd|' /C calc'!A0", "-5"] == row


@pytest.mark.parametrize("break_", [";", "\t", "\r", "\n"])
def test_no_formula_begins_inside_a_cell(break_: str) -> None:
    """Where a spreadsheet separates by semicolons, a row is cut elsewhere; nested values stay the same JSON."""
    labels = {"a": f"x{break_}=1+1", "b": ";-5"}
    text = as_csv(["job", "labels"], [{"job": f"x{break_}=1+1;y", "labels": labels}])
    _, (job, shown) = csv.reader(io.StringIO(text, newline=""))
    assert f"x{break_}'=1+1;y" == job
    assert labels == json.loads(shown)
    assert ";=" not in text
    assert ";-" not in text


def test_values_keep_their_meaning() -> None:
    """Null is empty, booleans are words, integers beyond 64 bits are exact, nested values are JSON."""
    row = {"a": None, "b": True, "c": 2**70, "d": {"x": 1}, "e": 0.5, "f": 'say "hi", then\nleave'}
    _, cells = csv.reader(io.StringIO(as_csv(list(row), [row]), newline=""))
    assert ["", "true", str(2**70), '{"x":1}', "0.5", 'say "hi", then\nleave'] == cells


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/csv", True),
        ("TEXT/CSV; header=present", True),
        ("application/json;q=0.5, text/csv", True),
        ("text/csv;q=0.5, application/json", False),
        ("text/csv;q=0", False),
        ("text/csv;q=nonsense", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
    ],
)
def test_csv_is_given_to_who_prefers_it(accept: str, *, expected: bool) -> None:
    """JSON wins a tie."""
    assert expected == wants_csv(accept)
