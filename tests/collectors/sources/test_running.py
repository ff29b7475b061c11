"""Sources at work: one that hangs, fails or is not there costs the node its facts and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

from ett_collector.agent.sources import running
from ett_collector.agent.sources.registry import SOURCES, make
from ett_collector.agent.sources.running import FAILING, HANGING, MISSING, STANDING_BY, UP, Sources
from ett_collector.agent.sources.source import Surroundings
from tests.collectors.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.collectors.conftest import Bench

START = "import ett_collector as ett\nett.start('j', attempt='a')\nfor n in range(50): ett.step(n)\nett.end()"


def test_every_row_is_a_source() -> None:
    """Each can be made, and what stands in for others names them."""
    for name, row in SOURCES.items():
        source = make(name, Surroundings(), None)
        assert all(callable(getattr(source, verb)) for verb in ("open", "read", "close"))
        assert set(row.better) <= SOURCES.keys() - {name}


def test_source_that_hangs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log on a file system that does not answer: steps arrive, the end is in time, and the doctor says it."""
    log = bench.folder / "fabricmanager.log"
    os.mkfifo(log)  # to open it waits for a writer that never comes
    agent = bench.agent("--sources", "fabric_manager", "--fabric-log", str(log))
    bench.trainer(START).communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    doctor = bench.agent("--sources", "fabric_manager", "--fabric-log", str(log), "doctor", "--json")
    began = time.monotonic()
    bench.stop(agent)
    assert time.monotonic() - began < 15
    told = json.loads(doctor.communicate(timeout=30)[0])["checks"]
    assert "hangs" in next(one["said"] for one in told if one["check"] == "fabric manager")

    monkeypatch.setattr(running, "HANGS_S", 0.1)
    monkeypatch.setattr(running, "STAND_BY_S", 0.0)
    sources = Sources(("fabric_manager",), Surroundings(fabric_log=str(log)), {})
    sources.start()
    until(lambda: sources.health()[0].state == HANGING)
    assert [] == sources.drain()
    sources.stop()
    log.unlink()


def test_source_that_fails(bench: Bench) -> None:
    """Said once, tried again with growing pauses, and all else goes on."""
    with socket.create_server(("127.0.0.1", 0)) as exporter:
        answers: list[float] = []

        def speak_nonsense() -> None:
            while True:
                try:
                    line, _ = exporter.accept()
                except OSError:
                    return
                answers.append(time.monotonic())
                with line, contextlib.suppress(OSError):  # the agent may end in the middle of it
                    line.recv(1000)
                    line.sendall(b"this is no HTTP\r\n\r\n")

        thread = threading.Thread(target=speak_nonsense)
        thread.start()
        url = f"http://127.0.0.1:{exporter.getsockname()[1]}/metrics"
        agent = bench.agent("--sources", "dcgm", "--dcgm-url", url)
        until(lambda: len(answers) > 1)
        bench.trainer(START).communicate(timeout=30)
        until(lambda: bench.receiver.of("attempt_end"))
        errors = bench.stop(agent)
        exporter.shutdown(socket.SHUT_RDWR)
    thread.join()

    assert 1 == errors.count("source dcgm is failing: BadStatusLine")


def test_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up, missing, and standing by while a better one is up; failures are counted."""
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    around = Surroundings(kmsg=str(log), fabric_log=str(tmp_path / "none"), sysfs=str(tmp_path))
    sources = Sources(("kernel_log", "cgroup", "fabric_manager"), around, {})
    sources.start()
    until(lambda: [UP, MISSING, STANDING_BY] == [one.state for one in sources.health()])
    assert sources.is_outdone("fabric_manager")
    sources.stop()

    monkeypatch.setattr(running, "FIRST_WAIT_S", 0.01)
    (tmp_path / "file").write_text("")
    broken = Sources(("slurm",), Surroundings(), {})
    (tmp_path / "scontrol").write_text("no program")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(
        "ett_collector.agent.sources.slurm.Slurm.read", lambda _: sys.exit
    )  # it answers no Read
    broken.start()
    until(lambda: broken.health()[0].failures > 1)
    until(lambda: FAILING == broken.health()[0].state)  # and not in the middle of its next try
    broken.stop()
