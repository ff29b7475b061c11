"""The sources of node facts: which work here, and why others do not."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from ett_collector.agent.checks.line import FAIL, OK, WARN, Line
from ett_collector.agent.sources.registry import SOURCES, make
from ett_collector.agent.sources.source import Missing, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ett_collector.agent.config import AgentConfig

PATIENCE_S = 3.0
NEEDED = (
    "kernel_log",
    "cgroup",
)  # every Linux has them: where one is missing, the agent lacks a right or a mount


def check_sources(config: AgentConfig) -> Iterator[Line]:
    """Open each once. Where a better one works, another is not missed."""
    around = Surroundings(config.procfs, config.sysfs, config.kmsg, config.fabric_log, config.dcgm_url)
    up: set[str] = set()
    for name in SOURCES:
        check = name.replace("_", " ")
        if name not in config.sources:
            yield Line(check, OK, "switched off by ETT_AGENT_SOURCES")
            continue
        better = [one for one in SOURCES[name].better if one in up]
        if better and not SOURCES[name].looks_on:
            yield Line(check, OK, f"stands by: {better[0]} tells the same")
            continue
        status, why = try_source(name, around)
        if status == OK:
            up.add(name)
            yield Line(check, OK, "works")
        elif status == WARN:
            missed = name in NEEDED and not better
            do = "XIDs and OOM kills stay unknown unless another source tells them" if missed else ""
            yield Line(check, WARN if missed else OK, f"not here: {why}", do)
        else:
            yield Line(check, FAIL, why, "it is tried again with growing pauses; the agent works without it")


def try_source(name: str, around: Surroundings) -> tuple[str, str]:
    """Open a source and close it: ok, warn where there is none, fail where it fails or hangs; and why."""
    result: list[tuple[str, str]] = []

    def look() -> None:
        source = None
        try:
            source = make(name, around, None)
            source.open()
        except Missing as why:
            result.append((WARN, str(why)))
        except Exception as error:  # noqa: BLE001 - whatever a driver's library or a device comes up with
            result.append((FAIL, f"{type(error).__name__}: {error}"))
        else:
            result.append((OK, ""))
        finally:
            with contextlib.suppress(Exception):
                if source is not None:
                    source.close()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return result[0] if result else (FAIL, f"hangs: no answer for {PATIENCE_S:.0f} s")
