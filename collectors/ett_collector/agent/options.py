"""All options of the agent as one table: name, variable, default and what it is."""

from __future__ import annotations

import argparse
import socket
from typing import TYPE_CHECKING, NoReturn

from ett_collector.agent.sources.registry import SOURCES
from ett_collector.identity import spool_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_URL = "http://127.0.0.1:8080"
RUN, DOCTOR = "run", "doctor"


class WrongSetting(ValueError):  # noqa: N818 - what it is about is in its text
    """A setting that cannot be used; `str()` names it."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the program: at SIGHUP it goes on with what it has."""
        raise WrongSetting(message)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86_400:  # a day
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


# option, variable, default (None: found out), type, what it is
_OPTIONS: tuple[tuple[str, str, str | None, type, str], ...] = (
    ("--url", "ETT_URL", DEFAULT_URL, str, "address of the service"),
    ("--node", "ETT_NODE", None, str, "name of this node (not of the agent's pod)"),
    ("--spool-dir", "ETT_SPOOL_DIR", None, str, "where trainers record"),
    ("--state-dir", "ETT_AGENT_STATE_DIR", "", str, "outbox and dead letters; empty: <spool-dir>/agent"),
    ("--token-file", "ETT_AGENT_TOKEN_FILE", "", str, "file with the token for the service"),
    ("--ca", "ETT_AGENT_CA", "", str, "PEM file of the authority that signed the service's certificate"),
    ("--heartbeat", "ETT_AGENT_HEARTBEAT_S", "10", float, "seconds between heartbeats"),
    ("--window", "ETT_AGENT_WINDOW_S", "10", float, "seconds of steps in one window"),
    ("--poll", "ETT_AGENT_POLL_S", "0.5", float, "seconds between looks into the spools"),
    ("--drain", "ETT_AGENT_DRAIN_S", "10", float, "seconds to send what is left at SIGTERM"),
    ("--timeout", "ETT_AGENT_TIMEOUT_S", "20", float, "seconds to wait for an answer of the service"),
    ("--outbox-mib", "ETT_AGENT_OUTBOX_MIB", "1024", int, "MiB of unsent events kept at most"),
    ("--metrics", "ETT_AGENT_METRICS", "off", str, "address:port of /metrics and /healthz, or off"),
    ("--sources", "ETT_AGENT_SOURCES", "all", str, f"node facts: all, none, or of {', '.join(SOURCES)}"),
    ("--procfs", "ETT_AGENT_PROCFS", "/proc", str, "root of the process file system"),
    ("--sysfs", "ETT_AGENT_SYSFS", "/sys", str, "root of sysfs, with the cgroups"),
    ("--kmsg", "ETT_AGENT_KMSG", "/dev/kmsg", str, "the kernel's log"),
    (
        "--fabric-log",
        "ETT_AGENT_FABRIC_LOG",
        "/var/log/fabricmanager.log",
        str,
        "NVIDIA fabric manager's log",
    ),
    ("--dcgm-url", "ETT_AGENT_DCGM_URL", "http://127.0.0.1:9400/metrics", str, "page of a dcgm-exporter"),
)
VARIABLES = frozenset({*(one[1] for one in _OPTIONS), "ETT_AGENT_TOKEN", "ETT_AGENT_CONFIG"})


def parser_of(environ: Mapping[str, str], *, only_file: bool = False) -> argparse.ArgumentParser:
    """The parser with defaults from an environment; `only_file`: of `--config` alone. Raises `WrongSetting`."""
    parser = _Parser(
        prog="ett-agent",
        description="Ships what the trainers of this node recorded, and watches their processes. "
        "One agent a node. Every option has a variable; the option goes before it. `ett-agent doctor` says what it "
        "sees and what is missing.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        add_help=not only_file,
    )
    said = environ.get("ETT_AGENT_CONFIG", "")
    text = (
        "file of NAME=value lines that goes before the environment, read again at SIGHUP [ETT_AGENT_CONFIG]"
    )
    parser.add_argument("--config", default=said, metavar="str", help=text)
    if only_file:
        return parser
    found_out = {"--node": socket.gethostname(), "--spool-dir": spool_folder(environ)[0]}
    for name, variable, default, kind, text in _OPTIONS:
        # a default from the environment is text, and argparse converts and checks it like an option
        convert = {float: _seconds, int: _count}.get(kind, kind)
        standard = found_out[name] if default is None else default
        parser.add_argument(
            name,
            default=environ.get(variable) or standard,
            type=convert,
            metavar=kind.__name__,
            help=f"{text} [{variable}]",
        )
    parser.add_argument("--verbose", action="store_true", help="say more on standard error")
    parser.add_argument("--json", action="store_true", help="doctor: as JSON")
    parser.add_argument("command", nargs="?", choices=(RUN, DOCTOR), default=RUN, help="what to do")
    return parser
