"""What the amounts of roll-ups are sums of."""

from __future__ import annotations

from fleet_ett.core.taxonomy import HEADINGS

UNITS = ("wall_ns", "gpu_ns")  # how the name of an amount ends


def sum_of(amount: str) -> str:
    """SQL: an amount as the sum over rows `d`, which have a heading and AMOUNTS."""
    heading = next((one for one in HEADINGS if amount.removeprefix("settled_").startswith(f"{one}_")), None)
    if heading is None:
        return f"sum(d.{amount})"
    column = amount.replace(f"{heading}_", "")
    return f"coalesce(sum(d.{column}) FILTER (WHERE d.heading = '{heading}'), 0)"
