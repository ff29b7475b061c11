"""Loss as shares: every row of loss against all GPU time that the scope's jobs held."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet_ett.core.ratios import ett
from fleet_ett.http.schemas import LostRow
from fleet_ett.reads import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet_ett.reads import Reads, Row, Scope


def held_in(books: Reads, scope: Scope) -> Row:
    """What the scope's jobs held in all: the denominator of shares, whatever part of it is shown."""
    whole = replace(scope, filters=replace(scope.filters, component=(), phase=(), cause=()))
    return books.ett(whole, (), Page(1))[0]


def lost_rows(rows: Sequence[Row], gpu_ns: int) -> list[LostRow]:
    """Rows of loss with their share of all GPU time held."""
    out = []
    for row in rows:
        direct = row["direct_gpu_ns"]
        share = ett(direct, gpu_ns) if isinstance(direct, int) else None
        out.append(LostRow.model_validate(row | {"direct_share": share}))
    return out
