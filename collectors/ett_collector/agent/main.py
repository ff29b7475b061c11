"""`ett-agent`: one a node; runs until SIGTERM or SIGINT, then sends what is left and ends.

SIGHUP reads its settings again. `ett-agent doctor` looks around and says what it sees.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from ett_collector.agent.agent import Agent
from ett_collector.agent.config import AgentConfig
from ett_collector.agent.notify import Notifier
from ett_collector.agent.options import DOCTOR, WrongSetting
from ett_collector.agent.outbox import Outbox
from ett_collector.agent.post import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TRIES, TRY_S = 5, 0.1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("ett-agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent; 0 after a clean end, 1 where it cannot begin, 2 for a wrong setting."""
    try:
        config = AgentConfig.from_args(argv, os.environ)
    except WrongSetting as error:
        print(f"ett-agent: error: {error}", file=sys.stderr)
        return 2
    if config.command == DOCTOR:
        from ett_collector.agent.doctor import examine  # noqa: PLC0415 - of no use to an agent that runs

        return examine(config)
    logging.basicConfig(
        level=logging.DEBUG if config.verbose else logging.INFO,
        format="ett-agent: %(message)s",
        stream=sys.stderr,
    )
    _warn(config)
    try:
        os.makedirs(config.state_dir, mode=0o700, exist_ok=True)
        with _alone(config.state_dir) as is_alone:
            if not is_alone:
                log.error(
                    "another agent uses %s: one a node, or give each its own --state-dir", config.state_dir
                )
                return 1
            outbox = Outbox(config.state_dir, limit_bytes=config.outbox_bytes)
            _run(Agent(config, outbox), argv)
            outbox.close()
    except OSError as error:
        log.error("cannot keep events in %s: %s", config.state_dir, error)  # noqa: TRY400 - no trace for an operator
        return 1
    return 0


def _warn(config: AgentConfig) -> None:
    """Say where a token is not safe; it is used all the same."""
    if config.token_file and os.stat(config.token_file).st_mode & 0o007:
        log.warning(
            "every user of this machine can read or change %s, which holds the token", config.token_file
        )
    if config.token and config.url.startswith("http:") and not is_loopback(config.url):
        log.warning("the token travels in the clear to %s: use https", config.url)


def _run(agent: Agent, argv: Sequence[str] | None) -> None:
    config, systemd = agent.config, Notifier(os.environ)
    with _signals() as signals:
        log.info(
            "node %s: %s -> %s (%d events wait)",
            config.node,
            config.spool_dir,
            config.url,
            agent.outbox.backlog,
        )
        agent.start()
        systemd.ready(f"node {config.node}, {config.url}")
        while True:
            more = agent.cycle()
            if agent.shipper.is_running:
                systemd.alive()
            came = _wait(0.0 if more else agent.config.poll_s, agent, signals)
            if came & {signal.SIGTERM, signal.SIGINT}:
                break
            if signal.SIGHUP in came:
                _reload(agent, argv, systemd)
        systemd.stopping()
        agent.stop()


def _reload(agent: Agent, argv: Sequence[str] | None, systemd: Notifier) -> None:
    """Read the settings again; with a wrong one all stay as they are."""
    systemd.reloading()
    try:
        new = AgentConfig.from_args(argv, os.environ)
    except WrongSetting as error:
        log.error("not reloaded, the old settings stay: %s", error)  # noqa: TRY400 - no trace for an operator
    else:
        _warn(new)
        agent.reload(new)
    systemd.ready(f"node {agent.config.node}, {agent.config.url}")


def _wait(seconds: float, agent: Agent, signals: socket.socket) -> set[int]:
    """Sleep until a process ends, a signal comes or the time is over; the signals that came."""
    poller = select.poll()
    for fd in agent.node.trainers.watch.fds():
        poller.register(fd, select.POLLIN)
    poller.register(signals, select.POLLIN)
    if any(fd == signals.fileno() for fd, _ in poller.poll(seconds * 1000)):
        return set(signals.recv(4096))
    return set()


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket from which the numbers of `SIGNALS` can be read as they come."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    wakeup = signal.set_wakeup_fd(writer.fileno())  # first: what the handlers get is told nowhere else
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[bool]:
    """Whether no other agent holds the folder; it is held until the end of the block."""
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as file:
        for _ in range(TRIES):  # a doctor may be looking
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(TRY_S)
            else:
                yield True
                return
        yield False


def is_held(folder: str) -> bool:
    """Whether an agent holds the folder now."""
    try:
        with open(os.path.join(folder, "lock"), encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


if __name__ == "__main__":
    sys.exit(main())
