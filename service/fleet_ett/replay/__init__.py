"""Files attributed offline: no server, no database (`fleet-ett replay`, wire.md "Offline").

`replay_wire` reads wire files (one event a line), `replay_goodput` timelines in the vocabulary of
ml-goodput-measurement; `document` renders what they return as JSON, `table` that as text.
"""

from __future__ import annotations

from fleet_ett.replay.command import main
from fleet_ett.replay.offline import Replay, replay_goodput, replay_wire
from fleet_ett.replay.report import document
from fleet_ett.replay.table import table

__all__ = ["Replay", "document", "main", "replay_goodput", "replay_wire", "table"]
