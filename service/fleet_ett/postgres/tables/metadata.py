"""What all tables share."""

from __future__ import annotations

from sqlalchemy import MetaData, text

metadata = MetaData()

EMPTY = text("''")
FALSE = text("false")
ZERO = text("0")
