"""The outbox: all of a commit or nothing of it, under one identity, until the service has it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from ett_collector.agent import outbox as outbox_module
from ett_collector.agent.outbox import Full, Outbox
from tests.collectors.conftest import COLLECTORS

if TYPE_CHECKING:
    from pathlib import Path


def event(n: int) -> dict[str, Any]:
    """Any event."""
    return {"type": "heartbeat", "ts": n, "jobs": []}


def waiting(outbox: Outbox) -> list[tuple[str, int, int]]:
    """(incarnation, seq, ts) of all that waits; takes it out."""
    found = []
    while (batch := outbox.unsent(1000)) is not None:
        found += [(incarnation, one["seq"], one["ts"]) for _, incarnation, one in batch.items]
        outbox.ack(batch.items[-1][0] + 1)
    return found


def test_events_wait_over_restarts_under_their_identity(tmp_path: Path) -> None:
    """A later agent sends them with the incarnation and number that they were given; its own come after."""
    first = Outbox(str(tmp_path))
    first.commit([event(1), event(2)], {}, 0)
    first.commit([event(3)], {}, 0)
    batch = first.unsent(1)
    assert batch is not None
    first.ack(batch.items[0][0] + 1)

    second = Outbox(str(tmp_path))
    second.commit([event(4)], {}, 0)

    assert [(first.incarnation, 1, 2), (first.incarnation, 2, 3), (second.incarnation, 0, 4)] == waiting(
        second
    )
    assert [] == waiting(Outbox(str(tmp_path)))


def test_state_is_kept_with_its_events(tmp_path: Path) -> None:
    """What was read and what came of it are one commit; None forgets."""
    first = Outbox(str(tmp_path))
    first.commit([event(1)], {"traces": {"a": {"offset": 1}, "b": {"offset": 2}}}, 0)
    first.commit([], {"traces": {"a": None}}, 0)

    assert {"traces": {"b": {"offset": 2}}} == Outbox(str(tmp_path)).state


@pytest.mark.parametrize("cut", [1, 10, 60, 120])
def test_torn_commit_never_happened(tmp_path: Path, cut: int) -> None:
    """A machine that died in the middle of a write: neither its events nor its state are there."""
    first = Outbox(str(tmp_path))
    first.commit([event(1)], {"s": {"k": 1}}, 0)
    first.commit([event(2)], {"s": {"k": 2}}, 0)
    path = max(tmp_path.glob("outbox.*.log"))
    os.truncate(path, path.stat().st_size - cut)

    second = Outbox(str(tmp_path))
    second.commit([event(3)], {}, 0)

    assert {"s": {"k": 1}} == second.state
    assert [1, 3] == [ts for _, _, ts in waiting(second)]


def test_offset_is_given_once(tmp_path: Path) -> None:
    """Events that waited for the first contact get the estimate of then, and keep it over a restart."""
    first = Outbox(str(tmp_path))
    first.commit([event(1)], {}, None)
    first.seal(50)
    first.commit([event(2)], {}, 60)
    second = Outbox(str(tmp_path))
    second.seal(70)

    batch = second.unsent(1000)
    assert batch is not None
    assert (50, [1]) == (batch.offset, [one["ts"] for _, _, one in batch.items])
    second.ack(batch.items[-1][0] + 1)
    batch = second.unsent(1000)
    assert batch is not None
    assert (60, [2]) == (batch.offset, [one["ts"] for _, _, one in batch.items])


def test_taken_events_leave_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files whose events are all taken are deleted; the state lives on."""
    monkeypatch.setattr(outbox_module, "FILE_BYTES", 2000)
    outbox = Outbox(str(tmp_path))
    for n in range(300):
        outbox.commit([event(n)], {"s": {"k": n}}, 0)
        assert [n] == [ts for _, _, ts in waiting(outbox)]

    assert outbox.size < 10_000
    assert {"s": {"k": 299}} == Outbox(str(tmp_path)).state


def test_full_outbox_takes_no_more_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is refused as a whole; once the service has taken some, it is kept."""
    monkeypatch.setattr(outbox_module, "FILE_BYTES", 1000)
    outbox = Outbox(str(tmp_path), limit_bytes=5000)
    while outbox.size <= 5000:
        outbox.commit([event(outbox.backlog)], {}, 0)
    kept = outbox.backlog

    with pytest.raises(Full):
        outbox.commit([event(kept)], {}, 0)

    assert list(range(kept)) == [ts for _, _, ts in waiting(outbox)]
    outbox.commit([event(kept)], {}, 0)
    assert [kept] == [ts for _, _, ts in waiting(outbox)]


def test_full_disk_refuses_a_commit_as_a_whole(tmp_path: Path) -> None:
    """What was begun is taken back: the next commit stands where it should."""
    code = f"""
import resource, sys
sys.path.insert(0, {COLLECTORS!r})
from ett_collector.agent.outbox import Outbox
outbox = Outbox({str(tmp_path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, -1))
refused = 0
for n in range(100):
    try: outbox.commit([{{"type": "heartbeat", "ts": n, "jobs": []}}], {{"s": {{"k": n}}}}, 0)
    except OSError: refused += 1
assert refused
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
outbox.commit([{{"type": "heartbeat", "ts": 1000, "jobs": []}}], {{"s": {{"last": 1}}}}, 0)
print(100 - refused)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    outbox = Outbox(str(tmp_path))
    kept = int(done.stdout)
    assert {"s": {"k": kept - 1, "last": 1}} == outbox.state
    assert [*range(kept), 1000] == [ts for _, _, ts in waiting(outbox)]


def test_kill_at_any_moment_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """A writer that counts in its state and its events is killed again and again: both always agree."""
    code = f"""
import sys
sys.path.insert(0, {COLLECTORS!r})
from ett_collector.agent import outbox as module
module.FILE_BYTES = 3000
outbox = module.Outbox({str(tmp_path)!r})
n = outbox.state.get("s", {{}}).get("n", 0)
while True:
    outbox.commit([{{"type": "heartbeat", "ts": n, "jobs": []}}], {{"s": {{"n": n + 1}}}}, 0)
    n += 1
    print(n, flush=True)
"""
    chance = random.Random(7)
    told = 0
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline()  # however long the disk takes
            time.sleep(0.02 + 0.1 * chance.random())
            writer.kill()
            told = int([first, *writer.stdout][-1])

    outbox = Outbox(str(tmp_path))
    found = waiting(outbox)
    assert told <= outbox.state["s"]["n"] <= told + 1
    assert list(range(outbox.state["s"]["n"])) == [ts for _, _, ts in found]
    assert len(found) == len({identity[:2] for identity in found})
