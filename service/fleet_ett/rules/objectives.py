"""What a fleet promises itself, by cluster and component: the rows that rules are rendered from.

`reading.py` makes them from YAML, `reach.py` refuses those that could never fire. Ratios are 0..1, durations
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Severities: somebody is woken, or somebody looks on a working day.
PAGE, TICKET = "page", "ticket"
SEVERITIES = (PAGE, TICKET)
# The objective of every cluster that is not named.
DEFAULT_CLUSTER = "default"


@dataclass(frozen=True, slots=True)
class Burn:
    """Alert when the budget burns `factor` times too fast over `long_s` and still does over `short_s`."""

    severity: str
    long_s: int
    short_s: int
    factor: float


@dataclass(frozen=True, slots=True)
class ClusterObjective:
    """The ETT that a cluster should have, the lost shares that its components may cost, and who is told."""

    cluster: str
    ett: float
    owner: str
    burns: tuple[Burn, ...]
    budgets: Mapping[str, float]
    component_burns: tuple[Burn, ...]


@dataclass(frozen=True, slots=True)
class Regression:
    """When a component is worse than its own past: `now_s` against the `past_s` before, as what ETT lost by it.

    `rise`: excess over what was to be expected, as a share of that; `share`: and of all GPU time held;
    `events`: starts or restarts that both times must have; `sigmas`: for failures, above a Poisson mean.
    """

    now_s: int = 6 * 3600
    past_s: int = 7 * 86_400
    rise: float = 0.3
    share: float = 0.005
    events: int = 10
    sigmas: float = 3.0
    ett_drop: float = 0.03
    persists_s: int = 1800


@dataclass(frozen=True, slots=True)
class Telemetry:
    """When what the figures stand on is doubtful."""

    absent_s: int = 600
    unknown: float = 0.05
    attribution_lag_s: int = 300
    ingest_lag_s: int = 300
    refused: float = 0.01
    agent_behind_s: int = 600
    stuck_gpus: int = 8
    stuck_s: int = 300
    service_job: str = "fleet-ett"
    agent_job: str = "ett-agent"


@dataclass(frozen=True, slots=True)
class Objectives:
    """One file of objectives. `gap_s`: for how long a scrape may be missed; `min_gpus`: fewer are no fleet."""

    clusters: tuple[ClusterObjective, ...]
    owners: Mapping[str, str]
    url: str
    runbooks: str
    owner: str
    gpus_per_node: int = 8
    min_gpus: float = 8
    interval_s: int = 60
    slow_interval_s: int = 180
    gap_s: int = 300
    windows_s: tuple[int, ...] = (3600, 6 * 3600, 86_400, 7 * 86_400)
    period_s: int = 30 * 86_400
    regression: Regression = field(default_factory=Regression)
    telemetry: Telemetry = field(default_factory=Telemetry)

    @property
    def reference_s(self) -> int:
        """The window whose mix of teams is the usual one: the longest."""
        return max(self.windows_s)

    @property
    def burn_windows_s(self) -> tuple[int, ...]:
        """The windows that burn rates look at, ascending."""
        burns = [burn for one in self.clusters for burn in (*one.burns, *one.component_burns)]
        return tuple(sorted({length for burn in burns for length in (burn.long_s, burn.short_s)}))
