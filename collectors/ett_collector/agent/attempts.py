"""The attempts of this node: their start from the first trainer, their end from the last one to go.

Every node speaks for itself (`nodes`, `gpus_by_node`), and the service unites what several say. The facts of
the earliest process that ended badly go out with the end; what they mean is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ett_collector.agent.trace import Trace

GRACE_NS = (
    1_000_000_000  # after the last process: its parent may still tell the status, a sibling may still start
)
_WORDS = (
    "preempted",
    "cancelled",
    "resized",
)  # ends that somebody decided: they explain the deaths around them


@dataclass
class Attempt:
    """One attempt on this node. `since` is the start that was told (ns), `ends` how its processes ended."""

    job: str
    attempt: str
    since: int | None = None
    job_told: bool = False
    trainers: int = 0
    ends: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Attempt:
        """The state of `to_json` back."""
        return cls(**state)

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return dict(vars(self))

    def join(self, trace: Trace, node: str) -> list[dict[str, Any]]:
        """A process of the attempt was found: `job` and `attempt_start`, again if it began earlier."""
        head = trace.head
        self.trainers += not trace.is_launcher
        events: list[dict[str, Any]] = []
        if not self.job_told and not trace.is_launcher:
            self.job_told = True
            facts = {k: v for k, v in (*head["facts"].items(), ("labels", head["labels"])) if v}
            events.append({"type": "job", "job": self.job, **facts})
        begun = head["allocated"] or head["launched_at"] or head["began"]
        told = self.since is not None and self.since <= begun
        if told and (self.trainers != 1 or trace.is_launcher):
            return events
        self.since = begun if self.since is None else min(begun, self.since)
        start = {
            "type": "attempt_start",
            "job": self.job,
            "attempt": self.attempt,
            "ts": self.since,
            "nodes": [node],
        }
        for name in ("gpus", "world_size", "released_between"):
            if head[name] is not None:
                start[name] = head[name]
        if head["gpus_on_node"] is not None:
            start["gpus_by_node"] = {node: head["gpus_on_node"]}
        events.append(start)
        return events

    def leave(self, facts: dict[str, Any]) -> None:
        """A process of the attempt has ended (`Trace.finished`)."""
        if facts not in self.ends:
            self.ends.append(facts)
            if self._counts(facts):
                self.ended = False

    def end(self, now: int, node: str) -> dict[str, Any] | None:
        """`attempt_end` once the last process is gone for a while (the caller knows that none is left)."""
        ends = [one for one in self.ends if self._counts(one)]
        if self.ended or not ends or now - max(one["at"] for one in ends) < GRACE_NS:
            return None
        self.ended = True
        last = max(one["at"] for one in ends)
        return {
            "type": "attempt_end",
            "job": self.job,
            "attempt": self.attempt,
            "ts": last,
            **_how(sorted(ends, key=_order), node),
        }

    def _counts(self, facts: dict[str, Any]) -> bool:
        """Whether that end is one of the attempt's: an `ett-run` that saw trainers start speaks for its child only."""
        return not (facts["launcher"] and self.trainers)

    def parents_word(self, pid: int, ticks: int) -> dict[str, Any] | None:
        """When and how a process ended (at, exit_code or signal) by the word of its `ett-run`."""
        for one in self.ends:
            if one.get("child") == [pid, ticks]:
                return {name: one[name] for name in ("at", "exit_code", "signal") if name in one}
        return None


def _how(ends: list[dict[str, Any]], node: str) -> dict[str, Any]:
    """Outcome and evidence: somebody's decision, else the earliest bad end, else completed, else unknown."""
    for one in ends:
        if one.get("outcome") in _WORDS:
            return {"outcome": one["outcome"], **_evidence(one)}
    for one in ends:
        if _is_bad(one):
            failed = {"failed_rank": one["rank"]} if not one["launcher"] else {}
            return {"outcome": "failed", **_evidence(one), **failed, "failed_node": node}
    fine = any(one.get("outcome") == "completed" or one.get("exit_code") == 0 for one in ends)
    return {"outcome": "completed" if fine else "unknown"}


def _order(one: dict[str, Any]) -> tuple[int, bool, int]:
    """By time; of those that were found dead together who was killed goes before who ended for it."""
    return one["at"], bool(one.get("clean") or "outcome" in one), one["rank"]


def _is_bad(one: dict[str, Any]) -> bool:
    if one.get("outcome") == "completed":
        return False
    said = one.get("outcome") == "failed" or one.get("error") or one.get("signal") or one.get("exit_code")
    # gone without a word from the interpreter: killed, even where nobody knows how
    return bool(said) or not (one.get("clean") or "outcome" in one or one.get("exit_code") == 0)


def _evidence(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("exit_code", "signal", "error") if name in one}
