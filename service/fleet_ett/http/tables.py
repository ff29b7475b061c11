"""Rows as CSV: the columns of the JSON, one header row, safe to open in a spreadsheet.

A text cell that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, "CSV
injection"), also inside, where one that separates by semicolons would begin a cell; numbers are left alone.
Nested values stand as JSON text.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MEDIA_TYPE = "text/csv; charset=utf-8; header=present"
# Full-width forms are folded to the plain sign by some spreadsheets.
FORMULA = re.compile("(^|[;\t\r\n])(?=[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-])")
FORMULA_IN_JSON = re.compile("(?<=;)[=+@-]")


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """The rows as CSV text (RFC 4180, CRLF)."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return out.getvalue()


def wants_csv(accept: str) -> bool:
    """Whether an `Accept` header prefers CSV to JSON; JSON on a tie, and when neither is named."""
    weights = {"text/csv": 0.0, "application/json": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                weight = _weight(parameter[2:])
        if kind in weights:
            weights[kind] = max(weights[kind], weight)
    return weights["text/csv"] > weights["application/json"]


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0.0 <= weight <= 1.0 else 0.0


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return FORMULA.sub(r"\1'", value)
    return FORMULA_IN_JSON.sub(_escaped, json.dumps(value, separators=(",", ":")))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
