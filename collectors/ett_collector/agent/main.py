"""`ett-agent`: one a node; runs until SIGTERM or SIGINT, then sends what is left and ends."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING

from ett_collector.agent.config import AgentConfig
from ett_collector.agent.deadletter import DeadLetters
from ett_collector.agent.node import Node
from ett_collector.agent.offset import ClockOffset
from ett_collector.agent.outbox import Outbox
from ett_collector.agent.post import is_loopback
from ett_collector.agent.ship import Shipper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger("ett-agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent; 0 after a clean end, 1 where it cannot begin."""
    config = AgentConfig.from_args(argv, os.environ)
    logging.basicConfig(
        level=logging.DEBUG if config.verbose else logging.INFO,
        format="ett-agent: %(message)s",
        stream=sys.stderr,
    )
    _warn(config)
    try:
        os.makedirs(config.state_dir, mode=0o700, exist_ok=True)
        with _alone(config.state_dir) as alone:
            if not alone:
                log.error(
                    "another agent uses %s: one a node, or give each its own --state-dir", config.state_dir
                )
                return 1
            outbox = Outbox(config.state_dir, limit_bytes=config.outbox_bytes)
            _run(config, outbox)
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


def _run(config: AgentConfig, outbox: Outbox) -> None:
    offset = ClockOffset()
    dead = DeadLetters(config.state_dir)
    shipper = Shipper(config, outbox, offset, dead)
    node = Node(config, outbox, offset, dead, shipper.wake.set)
    with _stop_signals() as stopped:
        shipper.start()
        log.info(
            "node %s: %s -> %s (%d events wait)", config.node, config.spool_dir, config.url, outbox.backlog
        )
        while not _wait(0.0 if node.cycle() else config.poll_s, node, stopped):
            pass
        while node.cycle():
            pass
        node.cycle(last=True)
        shipper.stop(config.drain_s)
    log.info("ended: %d events sent, %d wait in %s", shipper.sent, outbox.backlog, config.state_dir)
    outbox.close()


def _wait(seconds: float, node: Node, stopped: socket.socket) -> bool:
    """Sleep until a process ends, a signal comes or the time is over; whether to stop."""
    poller = select.poll()
    for fd in node.trainers.watch.fds():
        poller.register(fd, select.POLLIN)
    poller.register(stopped, select.POLLIN)
    return any(fd == stopped.fileno() for fd, _ in poller.poll(seconds * 1000))


@contextlib.contextmanager
def _stop_signals() -> Iterator[socket.socket]:
    """A socket that becomes readable at SIGTERM or SIGINT."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(writer.fileno())
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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = False
        else:
            held = True
        yield held


if __name__ == "__main__":
    sys.exit(main())
