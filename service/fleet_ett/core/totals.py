"""The sums of a job's first attempts, so that a job of many attempts is put together from a few.

An attempt that no event can change any more is added once; what a job's books need of it afterwards is here.
What grows with the number of attempts is not: incidents, flags and who held the job up stay with the attempts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fleet_ett.core.causes import KINDS
from fleet_ett.core.incidents import incident_of
from fleet_ett.core.summary import add_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet_ett.core.incidents import Incident
    from fleet_ett.core.summary import AttemptSummary, Pair

PAIRS = ("headings", "phases", "components", "l2")


@dataclass(slots=True)
class Totals:
    """Sums over the first `attempts` of a job, each with the incident that it ended with.

    Pairs are [wall ns, GPU-ns]. `start`, `time_to_start_ns`, `first_start_up_ns` are of attempt 0. `settled_until`:
    everything before it is settled, unless `provisional_ns` stands in an earlier attempt. `recovered`: [sum of the
    times to recover (ns), how many]. `node_ns`: nodes x time held. `incident_ns`: what all incidents cost (wall ns).
    """

    attempts: int = 0
    start: int | None = None
    time_to_start_ns: int | None = None
    first_start_up_ns: int = 0
    live: bool = False
    wall_ns: int = 0
    gpu_ns: int = 0
    headings: dict[str, Pair] = field(default_factory=dict)
    phases: dict[str, Pair] = field(default_factory=dict)
    components: dict[str, Pair] = field(default_factory=dict)
    l2: dict[str, Pair] = field(default_factory=dict)
    induced: dict[str, Pair] = field(default_factory=dict)
    overlapped: dict[str, int] = field(default_factory=dict)
    provisional_ns: int = 0
    settled_until: int | None = None
    steps_productive: int = 0
    steps_replayed: int | None = 0
    samples_replayed: int = 0
    repeated_startup_ns: int = 0
    saves: int = 0
    node_ns: int = 0
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    incident_ns: int = 0
    recovered: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, summary: AttemptSummary, after: AttemptSummary | None) -> Incident | None:
        """Add the next attempt; `after` is the one that follows it. Returns the incident that it ended with."""
        if not self.attempts:
            self.start = summary.start
            self.first_start_up_ns = summary.restart[0]
            if summary.first_new_at is not None:
                self.time_to_start_ns = summary.first_new_at - summary.start
        self.attempts += 1
        self.live |= summary.live
        self.wall_ns += summary.wall_ns
        self.gpu_ns += summary.gpu_ns
        for name in PAIRS:
            total = getattr(self, name)
            for key, (wall, gpu) in getattr(summary, name).items():
                add_pair(total, key, wall, gpu)
        for key, amount in summary.overlapped.items():
            self.overlapped[key] = self.overlapped.get(key, 0) + amount
        if not self.provisional_ns:  # the first attempt that is not settled to its end decides
            self.settled_until = summary.settled_until
        self.provisional_ns += summary.provisional_ns
        self.steps_productive += summary.steps_productive
        if summary.steps_replayed is None or self.steps_replayed is None:
            self.steps_replayed = None
        else:
            self.steps_replayed += summary.steps_replayed
        self.samples_replayed += summary.samples_replayed
        self.repeated_startup_ns += summary.repeated_startup[0]
        self.saves += summary.saves
        self.node_ns += (summary.wall_ns - summary.gap[0]) * max(len(summary.nodes), 1)
        incident = incident_of(summary, after)
        if incident is not None:
            self._add_incident(incident, after)
        return incident

    def _add_incident(self, incident: Incident, after: AttemptSummary | None) -> None:
        add_pair(self.induced, incident.component, incident.wall_ns, incident.gpu_ns)
        self.failures[incident.kind] += 1
        self.incident_ns += incident.wall_ns
        if after is not None and after.first_step_at is not None:
            self.recovered[0] += after.first_step_at - incident.at
            self.recovered[1] += 1

    def of(self, pairs: str, name: str) -> Pair:
        """The pair of that name among the `headings`, `phases`, `components`, `l2` or `induced`."""
        found: Pair = getattr(self, pairs).get(name, [0, 0])
        return found

    def copy(self) -> Totals:
        """The same sums, to go on from."""
        return Totals.from_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """JSON-able form; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Totals:
        """The sums that `to_json` wrote. They may share what is in `data`."""
        return cls(**data)
