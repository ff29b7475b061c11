"""Loss as shares: every row of loss against all GPU time that the scope's jobs held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.core.ratios import ett

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet_ett.reads import Reads, Row, Scope


def held_in(books: Reads, scope: Scope) -> Row:
    """What the scope's jobs held in all: the denominator of shares, whatever part of it is shown."""
    return books.held(scope.by_names(), ())[0]


def with_share(rows: Sequence[Row], gpu_ns: int) -> list[Row]:
    """Rows of loss, without sort keys, with their share of all GPU time held."""
    out: list[Row] = []
    for row in rows:
        direct = row["direct_gpu_ns"]
        share = ett(direct, gpu_ns) if isinstance(direct, int) else None
        out.append({name: value for name, value in row.items() if name != "_key"} | {"direct_share": share})
    return out
