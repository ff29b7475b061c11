"""Why an attempt ended: one cause, the evidence that decided, and whose it is.

Cause, symptom and outcome are three fields. Evidence is ordered by precedence and then by time: the
earliest initiating event wins, a cascade (NCCL time-outs after an XID) never replaces it, and an end that
nothing explains is `undiagnosed`, never guessed. Sources: NVIDIA's XID catalogue and resiliency taxonomy,
Slurm and Kubernetes states, torchelastic's error file (reference.md, section 5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet_ett.core.causes_default import (
    CAUSES,
    FAULTS,
    PREDICTORS,
    SIGNATURES,
    STATES,
    XID,
)
from fleet_ett.core.facts import at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ett_collector.wire import Event
    from fleet_ett.core.facts import Facts
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.tiles import Bounds

UNDIAGNOSED = "undiagnosed"
KINDS = ("infra", "user", "planned", "unknown")
_KIND_OF_DOMAIN = {
    "hardware": "infra",
    "system_software": "infra",
    "facility": "infra",
    "user": "user",
    "policy": "planned",
    "unknown": "unknown",
}
_ROWS = {row[0]: row for row in CAUSES}
_OUTCOMES = {
    "preempted": "preemption",
    "cancelled": "planned_code_or_config_change",
    "resized": "resize",
}
_XID_TEXT = re.compile(r"(?<!s)xid[\s_:=#(]*(?:pci:[0-9a-f:.]+\)?[\s:,]*)?(\d{1,3})\b", re.IGNORECASE)
_SIGNATURES = tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in SIGNATURES)
# Sources by precedence (taxonomy: attribution_rules); within one lot the earliest event decides.
_PRECEDENCE = (
    ("label",),
    ("fault", "xid", "notice", "controller"),
    ("outcome",),
    ("scheduler_state",),
    ("error",),
    ("exit_code",),
)
# Causes that mask another: they decide only where nothing initiating is found.
_CASCADES = frozenset(row[0] for row in CAUSES if row[1] == "symptom" and row[2] == "unknown")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that speaks for a cause. `rank_` orders sources, `at` is ns; smaller decides."""

    cause: str
    source: str
    status: str  # established, supported, hypothesis
    at: int
    text: str
    node: str | None = None
    rank: int | None = None

    @property
    def cascade(self) -> bool:
        """Whether it can be the consequence of another fault."""
        return self.cause in _CASCADES or (self.source == "xid" and self.text.endswith(" 43"))


@dataclass(frozen=True, slots=True)
class Failure:
    """The unplanned end of an attempt (`at` ns): its one cause and the evidence kept.

    `kind`: infra, user, planned or unknown. `component` causes the cost of it (induced view).
    `status`: established, supported, hypothesis or unknown.
    """

    at: int
    outcome: str
    cause: str
    kind: str
    component: str
    status: str
    node: str | None
    rank: int | None
    evidence: tuple[dict[str, Any], ...]


def component_of(cause: str) -> str:
    """The component that owns a cause."""
    return _ROWS[cause][3]


def kind_of(cause: str) -> str:
    """How a cause is counted: infra, user, planned or unknown."""
    return _KIND_OF_DOMAIN[_ROWS[cause][2]]


def failure(
    facts: Facts,
    bounds: Bounds,
    last_progress: int | None,
    hung_since: int | None,
    next_start: int | None,
    policy: Policy,
) -> Failure | None:
    """The verdict on the end of an attempt; None for a live or completed one.

    `last_progress` (ns) is the end of the last step time. Evidence is looked for from `before_ns` before it
    to `after_ns` after the end, within the attempt and before the next one, so that one fault is the cause
    of one end; a fault that names the attempt is its own. `hung_since` (ns): a stall longer than the hang
    threshold led to the end.
    """
    outcome = outcome_of(facts)
    if bounds.live or outcome == "completed":
        return None
    since = max((bounds.end if last_progress is None else last_progress) - policy.before_ns, bounds.start)
    until = bounds.end + policy.after_ns
    if next_start is not None:
        until = min(until, max(next_start, bounds.end))
    named = facts.attempt
    faults = [e for e in facts.faults if e.attempt == named or since <= at(e) <= until]
    found = [
        *_labelled(facts, bounds),
        *_faults(faults, bounds, last_progress, policy),
        *_ends(facts),
    ]
    if hung_since is not None:
        found.append(
            Evidence(
                "job_hang",
                "silence",
                "supported",
                hung_since,
                "no progress while holding hardware",
            )
        )
    decided = _decide(found, outcome, bounds.end)
    node, rank = decided.node, decided.rank
    for event in facts.ends:
        node = node or event.body.get("failed_node")
        rank = rank if rank is not None else event.body.get("failed_rank")
    return Failure(
        bounds.end,
        outcome,
        decided.cause,
        kind_of(decided.cause),
        component_of(decided.cause),
        decided.status,
        node,
        rank,
        tuple({"cause": e.cause, "source": e.source, "at": e.at, "text": e.text[:500]} for e in found[:20]),
    )


def outcome_of(facts: Facts) -> str:
    """What the scheduler called the end: the earliest evidence; unknown where nobody said anything."""
    for event in facts.ends:
        if event.body["outcome"] != "unknown":
            return str(event.body["outcome"])
    return "unknown"


def _decide(found: Sequence[Evidence], outcome: str, end: int) -> Evidence:
    """The one evidence that decides: by precedence of its source, then the earliest."""
    initiating = [e for e in found if not e.cascade]
    planned = _OUTCOMES.get(outcome)
    if planned:
        initiating.append(Evidence(planned, "outcome", "established", end, outcome))
    for sources in _PRECEDENCE:
        several = [e for e in initiating if e.source in sources]
        if several:
            return min(several, key=lambda e: (e.at, e.cause))
    cascades = [e for e in found if e.cascade]
    said = [e for e in cascades if e.source != "silence"] or cascades
    undiagnosed = Evidence(UNDIAGNOSED, "none", "unknown", end, outcome)
    return min(said, key=lambda e: (e.at, e.cause), default=undiagnosed)


def _labelled(facts: Facts, bounds: Bounds) -> Iterator[Evidence]:
    cause = facts.labels.get("ett.cause")
    if cause in _ROWS:
        yield Evidence(cause, "label", "established", bounds.end, f"operator's label {cause}")


def _faults(
    faults: list[Event], bounds: Bounds, last_progress: int | None, policy: Policy
) -> Iterator[Evidence]:
    for event in faults:
        kind, text = event.body["kind"], event.body.get("text", "")
        where = (
            at(event),
            f"{kind} {event.body.get('code', '')} {text}".strip(),
            event.node,
            event.rank,
        )
        if kind == "xid" or (kind == "other" and _XID_TEXT.search(text)):
            code = _xid_code(event.body.get("code"), text)
            if code is not None and code not in PREDICTORS and code in XID:
                yield Evidence(
                    XID[code],
                    "xid",
                    "established",
                    where[0],
                    f"xid {code}",
                    where[2],
                    where[3],
                )
        elif kind == "controller":
            stepping = last_progress is not None and at(event) - last_progress <= policy.flow_ns
            if stepping and at(event) <= bounds.end:
                yield Evidence("false_recovery", "controller", "supported", *where)
        elif kind in FAULTS:
            cause = _by_text(text) if kind in ("exception", "oom") else None
            cause = cause or FAULTS[kind]
            source = "notice" if kind in ("preemption", "maintenance") else "fault"
            if kind == "exception":
                source = "error"
            yield Evidence(
                cause,
                source,
                "supported" if source == "error" else "established",
                *where,
            )
        else:
            cause = _by_text(text)
            if cause:
                yield Evidence(cause, "error", "supported", *where)


def _xid_code(code: object, text: str) -> int | None:
    if isinstance(code, int):
        return code
    if isinstance(code, str) and code.isdigit():
        return int(code)
    found = _XID_TEXT.search(text)
    return int(found.group(1)) if found else None


def _ends(facts: Facts) -> Iterator[Evidence]:
    for event in facts.ends:
        body = event.body
        where = (event.body.get("failed_node"), event.body.get("failed_rank"))
        state = str(body.get("scheduler_state", "")).split(" ", 1)[0]
        if state in STATES:
            yield Evidence(
                STATES[state],
                "scheduler_state",
                "established",
                at(event),
                state,
                *where,
            )
        text = body.get("error", "")
        found = _XID_TEXT.search(text)
        if found and int(found.group(1)) in XID and int(found.group(1)) not in PREDICTORS:
            yield Evidence(XID[int(found.group(1))], "error", "supported", at(event), text, *where)
        elif text:
            cause = _by_text(text)
            if cause:
                yield Evidence(cause, "error", "supported", at(event), text, *where)
        code = body.get("exit_code")
        if code in (1, 2) and not text:
            cause = "user_code_exception" if code == 1 else "user_configuration"
            yield Evidence(cause, "exit_code", "hypothesis", at(event), f"exit code {code}", *where)


def _by_text(text: str) -> str | None:
    for pattern, cause in _SIGNATURES:
        if pattern.search(text):
            return cause
    return None
