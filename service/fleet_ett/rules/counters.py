"""The counters of the service, once for the whole fleet, however many replicas were scraped.

All replicas read one database, so each shows the same total, at most a scrape older than another. The highest value of
the last minutes over all of them is therefore the total; it does not fall when a replica goes, comes or is renamed, and
a missed scrape leaves no hole. When the database itself begins anew, it falls, once, as a counter that was reset.

Sums are taken before `increase`, which looks at the first sample of a series as its beginning: a label that shows up
with its first increment (a custom phase) is then a rise of a sum that was there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet_ett.core.taxonomy import DEFAULT
from fleet_ett.rules.durations import duration
from fleet_ett.rules.groups import Group, Record

if TYPE_CHECKING:
    from fleet_ett.rules.objectives import Objectives


@dataclass(frozen=True, slots=True)
class Total:
    """A counter's total by some of its labels: its name after the level, where it comes from, of which series."""

    name: str
    by: tuple[str, ...]
    metric: str
    labels: tuple[str, ...]
    only: str = ""
    slow: bool = False

    @property
    def series(self) -> str:
        """The recorded series."""
        return f"{'_'.join(self.by) or 'fleet'}:{self.name}:total"


def _phases(*stages: str) -> str:
    return "|".join(phase.id for phase in DEFAULT.phases if phase.stage in stages)


def _bucket(l2: str) -> str:
    return "|".join(phase.id for phase in DEFAULT.phases if phase.meta_l2 == l2)


STARTUP = _phases("schedule", "start")
COMPILE = _bucket("pt2_compile")
REPLAY = "step_replayed|step_discarded|step_aborted"
SAVES = "checkpoint_save_block|checkpoint_save_async"
_TEAM, _COMPONENT = ("cluster", "team"), ("cluster", "component")
_GPU = ("ett_gpu_seconds_total", ("cluster", "team", "heading"))
_LOST = ("ett_lost_gpu_seconds_total", ("cluster", "component", "phase", "repeated"))
_FAILURES = ("ett_failures_total", ("cluster", "component", "cause", "kind"))

HELD = Total("ett_held_gpu_seconds", _TEAM, *_GPU)
PRODUCTIVE = Total("ett_productive_gpu_seconds", _TEAM, *_GPU, 'heading="productive"')
UNKNOWN = Total("ett_unknown_gpu_seconds", ("cluster",), *_GPU, 'heading="unknown"')
LOST = Total("ett_lost_gpu_seconds", _COMPONENT, *_LOST)
INDUCED = Total(
    "ett_induced_gpu_seconds", _COMPONENT, "ett_induced_gpu_seconds_total", ("cluster", "component", "cause")
)
EVENTS = Total("ett_events", ("result",), "ett_events_total", ("result",))

# For comparisons with the past: over days, so a sample every few minutes does.
T_STARTUP = Total("ett_startup_gpu_seconds", _TEAM, *_GPU, 'heading="startup"', slow=True)
T_COMPILE = Total("ett_compiling_gpu_seconds", _TEAM, *_GPU, 'heading=~"startup|compile"', slow=True)
T_REPLAY = Total("ett_replay_gpu_seconds", _TEAM, *_GPU, 'heading=~"replay|aborted_step"', slow=True)
T_SAVES = Total("ett_checkpoint_gpu_seconds", _TEAM, *_GPU, 'heading="checkpoint"', slow=True)
T_ATTEMPTS = Total("ett_attempts", _TEAM, "ett_attempts_total", _TEAM, slow=True)
C_FIRST = Total(
    "ett_first_start_gpu_seconds", _COMPONENT, *_LOST, f'phase=~"{STARTUP}",repeated="false"', slow=True
)
C_AGAIN = Total(
    "ett_restart_gpu_seconds", _COMPONENT, *_LOST, f'phase=~"{STARTUP}",repeated="true"', slow=True
)
C_COMPILE = Total(
    "ett_compile_gpu_seconds", _COMPONENT, *_LOST, f'phase=~"{COMPILE}|recompile_in_loop"', slow=True
)
C_REPLAY = Total("ett_replay_gpu_seconds", _COMPONENT, *_LOST, f'phase=~"{REPLAY}"', slow=True)
C_SAVES = Total("ett_save_gpu_seconds", _COMPONENT, *_LOST, f'phase=~"{SAVES}"', slow=True)
C_FAILURES = Total("ett_failures", _COMPONENT, *_FAILURES, 'kind="infra"', slow=True)
STARTS = Total("ett_starts", ("cluster",), "ett_time_to_start_seconds_count", ("cluster",), slow=True)
RESTARTS = Total("ett_restarts", ("cluster",), "ett_time_to_recover_seconds_count", ("cluster",), slow=True)

TOTALS = (
    HELD, PRODUCTIVE, UNKNOWN, LOST, INDUCED, EVENTS,
    T_STARTUP, T_COMPILE, T_REPLAY, T_SAVES, T_ATTEMPTS,
    C_FIRST, C_AGAIN, C_COMPILE, C_REPLAY, C_SAVES, C_FAILURES, STARTS, RESTARTS,
)  # fmt: skip


def counter_groups(objectives: Objectives) -> tuple[Group, Group]:
    """The totals, and those that slower rules need."""
    fast = [_record(one, objectives) for one in TOTALS if not one.slow]
    fast += [
        Record(f"cluster:{one.name}:total", f"sum by (cluster) ({one.series})") for one in (HELD, PRODUCTIVE)
    ]
    slow = [_record(one, objectives) for one in TOTALS if one.slow]
    return (
        Group("ett-totals", duration(objectives.interval_s), tuple(fast)),
        Group("ett-totals-slow", duration(objectives.slow_interval_s), tuple(slow)),
    )


def _record(one: Total, objectives: Objectives) -> Record:
    chosen = f"{one.metric}{{{one.only}}}" if one.only else one.metric
    highest = f"max by ({', '.join(one.labels)}) (max_over_time({chosen}[{duration(objectives.gap_s)}]))"
    whole = highest if one.by == one.labels else f"sum by ({', '.join(one.by)}) ({highest})"
    return Record(one.series, whole)
