"""What an operator may set on the agent: options, else the file of `--config`, else `ETT_*` variables, else defaults.

Read at the start, and again at SIGHUP: an option of the command line stays, the file may have changed.
"""

from __future__ import annotations

import os
import ssl
import urllib.parse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ett_collector.agent.envfile import read_env_file
from ett_collector.agent.options import VARIABLES, WrongSetting, parser_of
from ett_collector.agent.sources.registry import SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECOND_NS = 1_000_000_000
# what a running agent keeps until it is started anew
FIXED = ("node", "spool_dir", "state_dir", "procfs", "sysfs")


@dataclass(frozen=True)
class AgentConfig:
    """Settings of one agent. `node` is the node's name, never the agent's own (a pod's).

    `metrics` is the address (host, port) of its page, None for no page. `sources` are names of `SOURCES`.
    """

    command: str
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
    metrics: tuple[str, int] | None
    sources: tuple[str, ...]
    procfs: str
    sysfs: str
    kmsg: str
    fabric_log: str
    dcgm_url: str
    verbose: bool
    as_json: bool

    @classmethod
    def from_args(cls, argv: Sequence[str] | None, environ: Mapping[str, str]) -> AgentConfig:
        """Read all settings. Raises `WrongSetting`; `--help` ends the program."""
        environ = {**environ, **_from_file(argv, environ)}
        options = parser_of(environ).parse_args(argv)
        url = _url(options.url)
        if not options.node:
            msg = "--node (ETT_NODE): this machine has no host name, so the node needs one"
            raise WrongSetting(msg)
        try:
            token = read_token(options.token_file) if options.token_file else ""
        except (OSError, ValueError) as error:
            msg = f"--token-file (ETT_AGENT_TOKEN_FILE): {error}"
            raise WrongSetting(msg) from error
        try:
            if options.ca:
                ssl.create_default_context(cafile=options.ca)
        except OSError as error:
            msg = f"--ca (ETT_AGENT_CA): {options.ca}: {error}"
            raise WrongSetting(msg) from error
        spool_dir = os.path.abspath(os.path.expanduser(options.spool_dir))
        return cls(
            command=options.command,
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
            metrics=parse_address(options.metrics),
            sources=parse_sources(options.sources),
            procfs=options.procfs,
            sysfs=options.sysfs,
            kmsg=options.kmsg,
            fabric_log=options.fabric_log,
            dcgm_url=options.dcgm_url,
            verbose=options.verbose,
            as_json=options.json,
        )

    def needs_restart(self, new: AgentConfig) -> list[str]:
        """The settings in which `new` differs and which a running agent keeps."""
        return [name for name in FIXED if getattr(self, name) != getattr(new, name)]

    def keeping(self, old: AgentConfig) -> AgentConfig:
        """These settings with those of `old` that need a restart."""
        return replace(self, **{name: getattr(old, name) for name in FIXED})


def read_token(path: str) -> str:
    """The token in a file. Raises `OSError`, and `ValueError` for text that no header can hold."""
    text = Path(path).read_text(encoding="utf-8").strip()
    if not (text.isascii() and text.isprintable()) or " " in text:
        msg = f"{path} does not hold a token"
        raise ValueError(msg)
    return text


def parse_address(text: str) -> tuple[str, int] | None:
    """`host:port`, `:port` (all addresses) or `[::1]:port`; None for nothing and for `off`."""
    if text in ("", "off"):
        return None
    host, found, port = text.rpartition(":")
    if not found or not (port.isascii() and port.isdigit() and int(port) < 65536):
        msg = f"--metrics (ETT_AGENT_METRICS) must be address:port or off, not {text!r}"
        raise WrongSetting(msg)
    return host.strip("[]"), int(port)


def parse_sources(text: str) -> tuple[str, ...]:
    """`all`, `none`, or names separated by commas; `-name` leaves one out of all."""
    words = [one.strip() for one in text.split(",") if one.strip()]
    if words in ([], ["none"]):
        return ()
    unknown = [one for one in words if one != "all" and one.removeprefix("-") not in SOURCES]
    if unknown:
        known = ", ".join(SOURCES)
        msg = f"--sources (ETT_AGENT_SOURCES): {unknown[0]!r} is none of all, none, {known}"
        raise WrongSetting(msg)
    wanted = {one for one in words if not one.startswith("-")}
    without = {one[1:] for one in words if one.startswith("-")}
    return tuple(one for one in SOURCES if (one in wanted or not wanted - {"all"}) and one not in without)


def _url(text: str) -> str:
    url = text.rstrip("/")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        msg = f"--url (ETT_URL) must be http(s)://host[:port], not {url!r}"
        raise WrongSetting(msg)
    return url


def _from_file(argv: Sequence[str] | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What the file of `--config` says. A name that the agent does not know is a mistake there."""
    path = parser_of(environ, only_file=True).parse_known_args(argv)[0].config
    if not path:
        return {}
    try:
        found = read_env_file(path)
    except (OSError, ValueError) as error:
        msg = f"--config (ETT_AGENT_CONFIG): {path}: {error}"
        raise WrongSetting(msg) from error
    wrong = [name for name in found if name.split("_")[:2] == ["ETT", "AGENT"] and name not in VARIABLES]
    if wrong:
        msg = f"--config (ETT_AGENT_CONFIG): {path}: no setting is called {wrong[0]}"
        raise WrongSetting(msg)
    return found
