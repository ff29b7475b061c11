"""Dynamo compiles no frame of this package: what a hook does beside a compiled function is none of its work."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def leave_out(module: Any) -> None:
    """`torch._dynamo.trace_rules`."""
    module.add("ett_collector")
