"""`ett-run -- command ...`: run a trainer or launcher and keep what only its parent can know.

It gives the children one job and attempt name, notes when the run began and how it ended (exit code or
signal), passes signals on, and ends with the status of the command. It never keeps the command from running.
Each Python below it has hooks on its imports (`ett_collector.hooks`), unless `--no-auto` or `ETT_AUTO=0` says no.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ett_collector import identity as identities
from ett_collector import process
from ett_collector.clock import Clock
from ett_collector.spool import HEAD_VERSION, Spool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT")
NOT_FOUND = 127
BY_SIGNAL = 128
BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hooks", "bootstrap")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code, 128 + signal where a signal ended it, 127 where it cannot be run."""
    options = _parser().parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        _parser().error("no command: ett-run -- torchrun train.py")
    if os.environ.get("ETT_DISABLE", "0") not in ("", "0"):
        return _status(subprocess.call(command))
    launch = Launch(options)
    return launch.run(command)


class Launch:
    """One run of a command, as records of kind `launcher` in a spool of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        said = {"ETT_JOB": options.job, "ETT_ATTEMPT": options.attempt}
        environ = os.environ | {name: value for name, value in said.items() if value}
        if options.spool_dir:
            environ["ETT_SPOOL_DIR"] = os.path.abspath(options.spool_dir)
        began, anchor = time.time_ns(), Clock().anchor
        token = os.urandom(16).hex()
        identity = identities.identify(environ, script="", process="")
        job = identity.job or os.path.basename(options.command[-1]) or "job"
        attempt = f"run:{token[:12]}" if identity.attempt == "process:" else identity.attempt
        environ.update(ETT_JOB=job, ETT_ATTEMPT=attempt)
        environ["ETT_ATTEMPT_LAUNCHED_NS"] = str(began)
        boot = process.boot_id()
        environ["ETT_ATTEMPT_LAUNCHED_MONO"] = f"{boot}:{began - anchor}"
        environ.pop("ETT_AUTO_PID", None)  # of a rank that runs this
        environ["ETT_AUTO"] = "0" if options.no_auto else environ.get("ETT_AUTO", "1")
        if environ["ETT_AUTO"] not in ("", "0"):
            path = environ.get("PYTHONPATH")
            environ["PYTHONPATH"] = os.pathsep.join([BOOTSTRAP, path] if path else [BOOTSTRAP])
        stat = process.read_stat(os.getpid())
        head = {
            "t": "head",
            "v": HEAD_VERSION,
            "kind": "launcher",
            "id": token,
            "at": began,
            "anchor": anchor,
            "pid": os.getpid(),
            "ticks": stat.ticks if stat is not None else 0,
            "boot": boot,
            "pidns": process.pid_namespace(),
            "began": began,
            **identity._replace(
                job=job,
                attempt=attempt,
                launched_at=began,
                released_between=False if options.hardware_kept else identity.released_between,
            )._asdict(),
            "facts": identities.facts(environ),
            "labels": None,
        }
        folder, private = identities.spool_folder(environ)
        self._spool = Spool(folder, f"launcher-{os.getpid()}-{token}", head, private=private)
        self._spool.set_anchor(time.monotonic_ns(), anchor)
        self._environ = environ
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # signals that came before there was anybody to pass them on to

    def run(self, command: Sequence[str]) -> int:
        """Run to the end of the command and note its status."""
        for name in PASSED_ON:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._pass_on)
        try:
            self._child = subprocess.Popen(command, env=self._environ)
        except OSError as error:
            self._note({"t": "exit", "exit_code": NOT_FOUND, "error": str(error)[:500]})
            print(f"ett-run: {command[0]}: {error.strerror}", file=sys.stderr)
            return NOT_FOUND
        for number in self._early:
            self._pass_on(number, None)
        stat = process.read_stat(self._child.pid)
        self._note({"t": "child", "pid": self._child.pid, "ticks": stat.ticks if stat is not None else 0})
        code = self._child.wait()
        ended = {"exit_code": code} if code >= 0 else {"signal": -code}
        self._note({"t": "exit", **ended})
        self._spool.close()
        return _status(code)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        # the terminal gives Ctrl-C to the whole foreground group, the command included
        if number == signal.SIGINT and _in_foreground():
            return
        child = self._child
        if child is None:
            self._early.append(number)
            return
        try:
            child.send_signal(number)
        except OSError:
            return

    def _note(self, record: dict[str, Any]) -> None:
        self._spool.note({**record, "mono": time.monotonic_ns()})


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _status(code: int) -> int:
    return code if code >= 0 else BY_SIGNAL - code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ett-run",
        description="Run a training command and keep how it began and ended for the books; "
        "a PyTorch trainer is recorded without a line in it.",
        epilog="On several nodes without Slurm give the same --job and --attempt everywhere.",
    )
    parser.add_argument("--job", help="the job's name, stable over restarts (ETT_JOB)")
    parser.add_argument("--attempt", help="this launch, new with every one (ETT_ATTEMPT)")
    parser.add_argument("--spool-dir", help="where records go (ETT_SPOOL_DIR)")
    parser.add_argument(
        "--hardware-kept", action="store_true", help="the hardware was kept since the last attempt"
    )
    parser.add_argument(
        "--no-auto", action="store_true", help="record only what the trainer says itself (ETT_AUTO=0)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command to run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
