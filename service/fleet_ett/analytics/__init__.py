"""Books as data frames, for notebooks and reports: frames in, frames out, no IO.

books = attribute_fleet(events)
cells = cells_frame(books)
ett_by(cells, "D")                 # ETT by day, a ratio of sums
lost_by(cells, "component", "W")   # GPU-hours lost by owner and week
"""

from __future__ import annotations

from fleet_ett.analytics.frames import cells_frame, segments_frame
from fleet_ett.analytics.trends import ett_by, lost_by

__all__ = ["cells_frame", "ett_by", "lost_by", "segments_frame"]
