"""Slurm: what it calls the jobs that run here, and how it says that they have ended.

The context is in the environment of the trainers. The end is asked of `scontrol`, once the trainers are gone and by
the first node of a job alone, since it knows what no exit status tells: preempted, timed out, out of memory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ett_collector.agent.sources.contexts import Contexts
from ett_collector.agent.sources.source import Missing, Read, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ett_collector.agent.sources.source import Finding, Surroundings

TIMEOUT_S = 10.0
ASK_S, GIVE_UP_S = 3.0, 180.0  # slurmctld forgets a job after MinJobAge, by default 300 s
LABELS = {
    "SLURM_JOB_ID": "slurm.job_id",
    "SLURM_JOB_PARTITION": "slurm.partition",
    "SLURM_JOB_ACCOUNT": "slurm.account",
    "SLURM_JOB_QOS": "slurm.qos",
    "SLURM_JOB_USER": "slurm.user",
    "SLURM_RESTART_COUNT": "slurm.restart_count",
}
OUTCOMES = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "NODE_FAIL": "failed",
    "BOOT_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "TIMEOUT": "failed",
    "DEADLINE": "failed",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
}
_FIELD = re.compile(r"(?:^|\s)(JobState|EndTime)=(\S+)")


@dataclass
class Allocation:
    """One attempt in one Slurm job. Monotonic s: `gone` since when (None: it runs here), `ask_at` the next question."""

    job: str
    attempt: str
    slurm: str
    is_first_node: bool
    gone: float | None = None
    ask_at: float = 0.0


def parse_context(environ: Mapping[str, str]) -> dict[str, str]:
    """The labels that the environment of a trainer gives; none outside of Slurm."""
    number = environ.get("SLURM_JOB_ID", "")
    if not (number.isascii() and number.isdigit()):  # it becomes an argument of scontrol's
        return {}
    return {label: environ[name] for name, label in LABELS.items() if environ.get(name)}


def parse_job(text: str) -> tuple[str, int] | None:
    """(state, end in s since 1970) of `scontrol --oneliner show job`; None while it has not ended for good.

    Times are in the node's own zone. A job that waits again was requeued; why is not told, so that is no end.
    """
    fields = dict(_FIELD.findall(text))
    state = fields.get("JobState", "")
    if state not in OUTCOMES:
        return None
    try:
        return state, int(time.mktime(time.strptime(fields.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S")))
    except (ValueError, OverflowError):
        return None


class Slurm:
    """Looks into each new trainer once, and asks for each attempt that is gone until it has ended."""

    def __init__(self, around: Surroundings, _cursor: dict[str, Any] | None) -> None:
        self._around = around
        self._contexts = Contexts(around, lambda _pid, environ: parse_context(environ))
        self._known: dict[tuple[str, str], Allocation] = {}
        self._scontrol: str | None = None

    def open(self) -> None:
        """Raises `Missing` where there is no Slurm on the node."""
        self._scontrol = shutil.which("scontrol")
        if self._scontrol is None and not any(
            os.path.isdir(path) for path in ("/etc/slurm", "/var/spool/slurmd")
        ):
            msg = "no scontrol on PATH, no /etc/slurm: not a node of Slurm's"
            raise Missing(msg)

    def read(self) -> Read:
        """Contexts of new attempts, verdicts on old ones."""
        findings: list[Finding] = []
        for context, environ in self._contexts.look():
            findings.append(context)
            number, is_first = context.labels["slurm.job_id"], environ.get("SLURM_NODEID", "0") == "0"
            self._begin(Allocation(context.job, context.attempt, number, is_first))
        live = {(one.job, one.attempt) for one in self._around.subjects}
        for key, allocation in list(self._known.items()):
            if key not in live:
                findings += self._ended(key, allocation)
        return Read(findings)

    def close(self) -> None:
        """Nothing is held."""

    def _begin(self, new: Allocation) -> None:
        """A job that goes on in another attempt here did not end with the one before."""
        self._known = {key: one for key, one in self._known.items() if one.slurm != new.slurm}
        self._known[new.job, new.attempt] = new

    def _ended(self, key: tuple[str, str], one: Allocation) -> list[Finding]:
        now = time.monotonic()
        one.gone = now if one.gone is None else one.gone
        if self._scontrol is None or not one.is_first_node or now - one.gone > GIVE_UP_S:
            del self._known[key]
            return []
        if now < one.ask_at:
            return []
        one.ask_at = now + ASK_S
        done = subprocess.run(
            [self._scontrol, "--oneliner", "show", "job", one.slurm],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        found = parse_job(done.stdout.decode(errors="replace"))
        if found is None:
            return []
        del self._known[key]
        state, end = found
        return [Verdict(one.job, one.attempt, end * 1_000_000_000, OUTCOMES[state], state)]
