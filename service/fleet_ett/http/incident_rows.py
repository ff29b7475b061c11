"""An incident's row: what the books hold of it and what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_ett.http.figures import number
from fleet_ett.http.owner_schemas import IncidentRow

if TYPE_CHECKING:
    from fleet_ett.reads import Row

COSTS = ("stall_ns", "gap_ns", "restart_ns", "replay_ns")


def incident_row(row: Row) -> IncidentRow:
    """The row with its whole cost in wall time."""
    told = {name: value for name, value in row.items() if name != "_key"}
    return IncidentRow.model_validate(told | {"wall_ns": sum(number(row, name) for name in COSTS)})
