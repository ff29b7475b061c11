"""All sources by name. A new one is a file here and a row in this table."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from ett_collector.agent.sources.source import Source, Surroundings


class Row(NamedTuple):
    """`pause_s` is between two reads (0: a read waits by itself).

    While one of `better` is up this source stands by: it would tell the same. `looks_on`: it looks all the same, and
    its faults are left out.
    """

    kind: str
    pause_s: float = 0.0
    better: tuple[str, ...] = ()
    looks_on: bool = False


SOURCES = {
    "kernel_log": Row("KernelLog"),
    "cgroup": Row("Cgroup", better=("kernel_log",), looks_on=True),
    "nvml": Row("Nvml", better=("kernel_log",)),
    "dcgm": Row("Dcgm", pause_s=30.0, better=("kernel_log", "nvml")),
    "fabric_manager": Row("FabricManager", pause_s=5.0, better=("kernel_log",)),
    "slurm": Row("Slurm", pause_s=2.0),
    "kubernetes": Row("Kubernetes", pause_s=2.0),
}


def make(name: str, around: Surroundings, cursor: dict[str, Any] | None) -> Source:
    """A source by its name; its module is read only now, so that what is not there costs nothing."""
    module = importlib.import_module(f"ett_collector.agent.sources.{name}")
    return cast("Source", getattr(module, SOURCES[name].kind)(around, cursor))
