"""torchelastic: what its error files and events tell of attempts and how they ended.

    python -m ett_collector.integrations.torchelastic --nproc-per-node 8 --max-restarts 3 train.py

is `torchrun` with a handler of its events: each start of the workers is an attempt, also where the script never came
as far as `ett.start`, with the time that its rendezvous took. Who launches from Python calls `register()` before.

An exception in a function under `@record` is written to a file that `TORCHELASTIC_ERROR_FILE` names. The agent reads
it when a trainer has died (`error_text`), so the words are there however the process came to its end.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector import identity as identities
from ett_collector import process
from ett_collector.spool import HEAD_VERSION, Spool

if TYPE_CHECKING:
    from collections.abc import Mapping

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
MAX_BYTES = 1024 * 1024
MAX_CHARACTERS = 16_000
PREFIX = "torchelastic.worker.status."
LOGGER = "torchelastic-events-"  # and the destination, which torchrun calls "null" by default


class ErrorReport(NamedTuple):
    """What an error file says: the exception's words, where it was raised, and when (s since 1970, 0 unknown)."""

    message: str
    callstack: str
    at_s: int

    @property
    def text(self) -> str:
        """Words first, then where."""
        return f"{self.message}\n{self.callstack}"[:MAX_CHARACTERS].rstrip()


def parse(text: str) -> ErrorReport | None:
    """The report in the text of an error file; None where it is none."""
    try:
        said = json.loads(text)["message"]
        if isinstance(said, str):
            return ErrorReport(said, "", 0)
        extra = said.get("extraInfo") or {}
        at = str(extra.get("timestamp", ""))
        return ErrorReport(
            str(said["message"]), str(extra.get("py_callstack", "")), int(at) if at.isdigit() else 0
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def read(path: str | None) -> ErrorReport | None:
    """The report in an error file; None where there is no such (regular) file, or no report in it."""
    if not path:
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with open(file, encoding="utf-8", errors="replace") as open_file:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return parse(open_file.read(MAX_BYTES))


def error_text(path: str | None) -> str | None:
    """The words of an error file; None where there are none."""
    report = read(path)
    return None if report is None else report.text


def register(destination: str = "null") -> None:
    """Take torchelastic's events in this process, which starts workers. `destination`: as told to torchrun."""
    logger = logging.getLogger(LOGGER + destination)
    if not any(isinstance(one, EventHandler) for one in logger.handlers):
        logger.addHandler(EventHandler())


class EventHandler(logging.Handler):
    """Writes one spool of kind `launcher` for each start of the workers on this node."""

    def __init__(self) -> None:
        super().__init__()
        self._group: Group | None = None
        self._rendezvous: tuple[int, int] | None = None  # start and end of the last one, wall ns

    def emit(self, record: logging.LogRecord) -> None:
        """Take one event, a line of JSON."""
        event = json.loads(record.getMessage())
        told = event.get("metadata") or {}
        state = str(event.get("name", "")).removeprefix(PREFIX)
        if event.get("source") == "AGENT":
            self._agent(state, told)
        elif state == "START":
            self._start(told)
        elif self._group is not None and state in ("SUCCEEDED", "FAILED", "UNHEALTHY"):
            self._group.ended(told)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """The launcher does not hear of it."""

    def _agent(self, state: str, told: dict[str, Any]) -> None:
        if state == "RENDEZVOUS" and told.get("duration_ms") is not None:
            now = time_ns()
            self._rendezvous = (now - int(told["duration_ms"] * 1e6), now)
        elif state in ("SUCCEEDED", "FAILED") and self._group is not None:
            self._group.close()
            self._group = None

    def _start(self, told: dict[str, Any]) -> None:
        group = self._group
        if group is None or told["agent_restarts"] != group.restarts or told["global_rank"] in group.files:
            if group is not None:
                group.close()
            self._group = group = Group(told, self._rendezvous)
            self._rendezvous = None
        group.add(told)


class Group:
    """The workers of one start on this node; `files` are their error files by global rank."""

    def __init__(self, told: dict[str, Any], rendezvous: tuple[int, int] | None) -> None:
        self.restarts = told["agent_restarts"]
        self.files: dict[int, str | None] = {}
        self._rendezvous = rendezvous
        self._failed: dict[str, Any] | None = None
        self._done = False
        self._spool: Spool | None = None
        environ = {**os.environ, "TORCHELASTIC_RUN_ID": str(told["run_id"]), "RANK": str(told["global_rank"])}
        environ["TORCHELASTIC_RESTART_COUNT"] = str(self.restarts)
        environ["WORLD_SIZE"] = str(_inner(told).get("role_world_size", [""])[0])
        found = identities.identify(environ, script="", process="")
        if not found.job or found.attempt.startswith("process:"):
            return  # its workers call it something that nobody else can know
        began = rendezvous[0] if rendezvous is not None else time_ns()
        head = _head(found, environ, began)
        folder, private = identities.spool_folder(environ)
        self._spool = Spool(folder, f"launcher-{os.getpid()}-{head['id']}", head, private=private)

    def add(self, told: dict[str, Any]) -> None:
        """One worker was started."""
        rank = told["global_rank"]
        self.files[rank] = _error_file(told.get("worker_id"))
        if self._rendezvous is not None and self._spool is not None:
            start, end = self._rendezvous
            span = {"span": f"rendezvous-{start}-{rank}", "start": start, "end": end}
            self._spool.note({"t": "phase", "phase": "rendezvous", "rank": rank, **span})

    def ended(self, told: dict[str, Any]) -> None:
        """How one worker ended, once all have: the first that failed is kept."""
        code = (_inner(told).get("exit_code") or [None])[0]
        if code is None:
            self._done = True
        elif self._failed is None:
            self._failed = {"exit_code": code} if code >= 0 else {"signal": -code}

    def close(self) -> None:
        """The workers are gone: by what they wrote, or by what was told of them."""
        if self._spool is None:
            return
        reports = [report for report in map(read, self.files.values()) if report is not None]
        facts: dict[str, Any] = (
            {"exit_code": 0} if self._done and self._failed is None else self._failed or {}
        )
        if reports:
            facts["error"] = min(reports, key=lambda one: one.at_s).text
        self._spool.note({"t": "exit", "at": time_ns(), **facts})
        self._spool.close()


def _inner(told: Mapping[str, Any]) -> dict[str, Any]:
    found = json.loads(told.get("metadata") or "{}")
    return found if isinstance(found, dict) else {}


def _error_file(pid: Any) -> str | None:
    """Where a worker writes its error, by its environment."""
    try:
        with open(f"/proc/{int(pid)}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except (OSError, TypeError, ValueError):
        return None
    start = f"{ERROR_FILE}=".encode()
    return next((os.fsdecode(pair[len(start) :]) for pair in pairs if pair.startswith(start)), None)


def _head(found: identities.Identity, environ: Mapping[str, str], began: int) -> dict[str, Any]:
    this = process.read_stat(os.getpid())
    return {
        "t": "head",
        "v": HEAD_VERSION,
        "kind": "launcher",
        "id": os.urandom(16).hex(),
        "at": time_ns(),
        "pid": os.getpid(),
        "ticks": this.ticks if this is not None else 0,
        "boot": process.boot_id(),
        "pidns": process.pid_namespace(),
        "began": began,
        **found._asdict(),
        "facts": identities.facts(environ),
        "labels": None,
    }


def main() -> None:
    """`torchrun`, with its events recorded."""
    from torch.distributed.run import get_args_parser  # noqa: PLC0415 - the agent reads error files without torch
    from torch.distributed.run import main as torchrun  # noqa: PLC0415

    options = get_args_parser().parse_args(sys.argv[1:])
    register(getattr(options, "event_log_handler", "null"))
    torchrun(sys.argv[1:])


if __name__ == "__main__":
    main()
