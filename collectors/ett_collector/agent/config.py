"""What an operator may set on the agent, read once: options, else `ETT_*` variables, else defaults."""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ett_collector.identity import spool_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECOND_NS = 1_000_000_000
DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True)
class AgentConfig:
    """Settings of one agent. `node` is the node's name, never the agent's own (a pod's)."""

    url: str
    node: str
    spool_dir: str
    state_dir: str
    token: str
    token_file: str
    ca: str
    heartbeat_ns: int
    window_ns: int
    poll_s: float
    drain_s: float
    timeout_s: float
    outbox_bytes: int
    procfs: str
    verbose: bool

    @classmethod
    def from_args(cls, argv: Sequence[str] | None, environ: Mapping[str, str]) -> AgentConfig:
        """Read options and environment; a wrong value ends the program with a message that names it."""
        parser = _parser(environ)
        options = parser.parse_args(argv)
        url = str(options.url).rstrip("/")
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            parser.error(f"--url (ETT_URL) must be http(s)://host[:port], not {url!r}")
        if not options.node:
            parser.error("--node (ETT_NODE): this machine has no host name, so the node needs one")
        try:
            token = read_token(options.token_file) if options.token_file else ""
        except (OSError, ValueError) as error:
            parser.error(f"--token-file (ETT_AGENT_TOKEN_FILE): {error}")
        try:
            if options.ca:
                ssl.create_default_context(cafile=options.ca)
        except OSError as error:
            parser.error(f"--ca (ETT_AGENT_CA): {options.ca}: {error}")
        spool_dir = os.path.abspath(os.path.expanduser(options.spool_dir))
        return cls(
            url=url,
            node=options.node,
            spool_dir=spool_dir,
            state_dir=os.path.abspath(options.state_dir or os.path.join(spool_dir, "agent")),
            token=token or environ.get("ETT_AGENT_TOKEN", ""),
            token_file=options.token_file,
            ca=options.ca,
            heartbeat_ns=int(options.heartbeat * SECOND_NS),
            window_ns=int(options.window * SECOND_NS),
            poll_s=options.poll,
            drain_s=options.drain,
            timeout_s=options.timeout,
            outbox_bytes=options.outbox_mib * 1024 * 1024,
            procfs=options.procfs,
            verbose=options.verbose,
        )


def read_token(path: str) -> str:
    """The token in a file. Raises `OSError`, and `ValueError` for text that no header can hold."""
    text = Path(path).read_text(encoding="utf-8").strip()
    if not (text.isascii() and text.isprintable()) or " " in text:
        msg = f"{path} does not hold a token"
        raise ValueError(msg)
    return text


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


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ett-agent",
        description="Ships what the trainers of this node recorded, and watches their processes. "
        "One agent a node. Every option has a variable; the option goes before it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )

    def option(name: str, variable: str, default: object, text: str, kind: type = str) -> None:
        # a default from the environment is text, and argparse converts and checks it like an option
        convert = {float: _seconds, int: _count}.get(kind, kind)
        said = environ.get(variable) or default
        parser.add_argument(
            name, default=said, type=convert, metavar=kind.__name__, help=f"{text} [{variable}]"
        )

    option("--url", "ETT_URL", DEFAULT_URL, "address of the service")
    option("--node", "ETT_NODE", socket.gethostname(), "name of this node (not of the agent's pod)")
    option("--spool-dir", "ETT_SPOOL_DIR", spool_folder(environ)[0], "where trainers record")
    option("--state-dir", "ETT_AGENT_STATE_DIR", "", "outbox and dead letters; empty: <spool-dir>/agent")
    option("--token-file", "ETT_AGENT_TOKEN_FILE", "", "file with the token for the service")
    option("--ca", "ETT_AGENT_CA", "", "PEM file of the authority that signed the service's certificate")
    option("--heartbeat", "ETT_AGENT_HEARTBEAT_S", "10", "seconds between heartbeats", float)
    option("--window", "ETT_AGENT_WINDOW_S", "10", "seconds of steps in one window", float)
    option("--poll", "ETT_AGENT_POLL_S", "0.5", "seconds between looks into the spools", float)
    option("--drain", "ETT_AGENT_DRAIN_S", "10", "seconds to send what is left at SIGTERM", float)
    option("--timeout", "ETT_AGENT_TIMEOUT_S", "20", "seconds to wait for an answer of the service", float)
    option("--outbox-mib", "ETT_AGENT_OUTBOX_MIB", "1024", "MiB of unsent events kept at most", int)
    option("--procfs", "ETT_AGENT_PROCFS", "/proc", "root of the process file system")
    parser.add_argument("--verbose", action="store_true", help="say more on standard error")
    return parser
