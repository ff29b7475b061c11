"""`ett-agent doctor`: what the agent would see here, what is missing, and what to do about it.

It changes nothing and may run beside the agent. Each line is ok, warn or fail; with a fail the exit status is 1.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from ett_collector.agent.checks.folders import check_letters, check_outbox, check_spool
from ett_collector.agent.checks.line import FAIL, OK, Line
from ett_collector.agent.checks.service import check_page, check_service
from ett_collector.agent.checks.sources import check_sources
from ett_collector.agent.checks.trainers import check_trainers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ett_collector.agent.config import AgentConfig

WIDTH = 16


def examine(config: AgentConfig) -> int:
    """Print all lines, as text or JSON; 1 where something fails."""
    lines = list(_lines(config))
    if config.as_json:
        print(json.dumps({"node": config.node, "checks": [dataclasses.asdict(one) for one in lines]}))
    else:
        for one in lines:
            print(f"{one.status:<5} {one.check:<{WIDTH}} {one.said}")
            if one.do:
                print(f"{'':<5} {'':<{WIDTH}} -> {one.do}")
    return int(any(one.status == FAIL for one in lines))


def _lines(config: AgentConfig) -> Iterator[Line]:
    yield Line("node", OK, f"{config.node}, spools in {config.spool_dir}, service at {config.url}")
    yield from check_spool(config)
    yield from check_outbox(config)
    yield from check_letters(config)
    yield from check_trainers(config)
    yield from check_service(config)
    yield from check_page(config)
    yield from check_sources(config)
