"""How attempts of a plan end: the evidence that is sent, and the verdict that it must lead to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TRACEBACK = "Traceback (most recent call last):\n"


@dataclass(frozen=True, slots=True)
class End:
    """One kind of end: what is sent and what must be concluded. `cause` None: nothing certain."""

    outcome: str
    kind: str
    component: str
    cause: str | None
    fields: dict[str, Any] = field(default_factory=dict)
    fault: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        """Whether the scheduler called it a failure: then silence with heartbeats is a stall."""
        return self.outcome == "failed"


def _text(error: str) -> dict[str, Any]:
    return {"error": error, "exit_code": 1}


FAILURES = (
    End("failed", "unknown", "unowned", None),
    End("failed", "unknown", "unowned", None, {"signal": 9}),
    End(
        "failed", "infra", "hw_fleet", "gpu_off_bus", {"exit_code": 1}, {"kind": "xid", "code": 79, "gpu": 1}
    ),
    End("failed", "infra", "hw_fleet", "gpu_uncorrectable_memory", {}, {"kind": "xid", "code": 48, "gpu": 0}),
    End("failed", "infra", "hw_fleet", "node_unreachable", {"scheduler_state": "NODE_FAIL"}),
    End("failed", "infra", "storage", "disk_space", _text("OSError: [Errno 28] No space left on device")),
    End("failed", "user", "model_owner", "user_code_exception", _text(TRACEBACK + "ValueError: bad shape")),
    End("failed", "user", "model_owner", "gpu_oom", _text("torch.OutOfMemoryError: CUDA out of memory.")),
)
PLANNED = (
    End("preempted", "planned", "scheduler", "preemption", {"scheduler_state": "PREEMPTED"}),
    End("preempted", "planned", "scheduler", "preemption", {"exit_code": 143}, {"kind": "preemption"}),
    End(
        "cancelled",
        "planned",
        "model_owner",
        "planned_code_or_config_change",
        {"scheduler_state": "CANCELLED"},
    ),
    End("failed", "planned", "scheduler", "time_limit", {"scheduler_state": "TIMEOUT"}),
)
RESIZED = End("resized", "planned", "scheduler", None)
LOST = End("unknown", "unknown", "unowned", None)  # no attempt_end at all
COMPLETED = End("completed", "", "", None, {"exit_code": 0})
