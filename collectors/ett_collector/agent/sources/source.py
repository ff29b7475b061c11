"""What a source of node facts is, and what it may find.

A source runs in a thread of its own and may be slow, hang or fail: nothing else waits for it. It tells raw facts;
whose they are is looked up by the agent, and what they mean is decided by the service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Missing(Exception):  # noqa: N818 - a state of the node, not a fault of the program
    """There is nothing of this kind on the node, or the agent may not look; `str()` says which and what to do."""


class Subject(NamedTuple):
    """A recorded process. `pid` is its number where the agent looks, None where that is not known."""

    name: str
    job: str
    attempt: str
    rank: int | None
    pid: int | None


class Fault(NamedTuple):
    """A `fault` of the wire before it is known whose it is. `at` wall ns; `pid`, `cgroup`: whom it names.

    `killed`: the process that it names was ended by it. `local`: of that process or its cgroup and of nobody else.
    """

    at: int
    kind: str
    text: str
    code: int | None = None
    gpu: int | None = None
    pid: int | None = None
    cgroup: str | None = None
    killed: bool = False
    local: bool = False


class Context(NamedTuple):
    """Labels of an attempt: what runs it."""

    job: str
    attempt: str
    labels: Mapping[str, str]


class Verdict(NamedTuple):
    """How a scheduler says that an attempt has ended; `at` (wall ns) is when the hardware was released."""

    job: str
    attempt: str
    at: int
    outcome: str
    state: str


Finding = Fault | Context | Verdict


class Read(NamedTuple):
    """What a read found. `cursor` is kept with it, and given to the source's next life."""

    findings: list[Finding]
    cursor: dict[str, Any] | None = None


@dataclass
class Surroundings:
    """What sources look at. `subjects` is replaced by the agent as a whole; `cgroups` (by pid) by `cgroup.py`."""

    procfs: str = "/proc"
    sysfs: str = "/sys"
    kmsg: str = "/dev/kmsg"
    fabric_log: str = "/var/log/fabricmanager.log"
    dcgm_url: str = "http://127.0.0.1:9400/metrics"
    subjects: tuple[Subject, ...] = ()
    cgroups: dict[int, str] = field(default_factory=dict)


class Source(Protocol):
    """One kind of node facts; made of (surroundings, the newest cursor or None), and anew after each failure."""

    def open(self) -> None:
        """Begin. Raises `Missing`, or anything where it should work and does not."""

    def read(self) -> Read:
        """What is new since the last read; may wait some seconds."""
        ...

    def close(self) -> None:
        """End; also after a failure."""
