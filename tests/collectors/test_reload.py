"""Settings that change while an agent runs, and what systemd is told of it."""

from __future__ import annotations

import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.config import AgentConfig
from ett_collector.agent.envfile import parse_env_file
from ett_collector.agent.options import WrongSetting
from tests.collectors.conftest import until
from tests.collectors.receiver import Receiver

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.collectors.conftest import Bench

START = "import ett_collector as ett\nett.start('j', attempt={name!r})\nett.step(0); ett.end()"


def agent_of(bench: Bench, file: Path, **environ: str) -> subprocess.Popen[str]:
    """An agent that has all of its settings from a file."""
    short = {"ETT_AGENT_POLL_S": "0.05", "ETT_AGENT_HEARTBEAT_S": "0.3", "ETT_URL": "http://127.0.0.1:9"}
    command = (sys.executable, "-m", "ett_collector.agent.main")
    return bench.spawn(*command, ETT_AGENT_CONFIG=str(file), **short, **environ)


def told(process: subprocess.Popen[str], text: str) -> str:
    """The next line of the log with a text."""
    assert process.stderr
    while text not in (line := process.stderr.readline()):
        assert line, "it has ended"
    return line


def test_sighup_takes_up_another_service(bench: Bench) -> None:
    """What waited for the old one goes to the new one, at once; what needs a restart is named and stays."""
    file = bench.folder / "agent.env"
    file.write_text("# where to\nETT_URL='http://127.0.0.1:9'\nETT_NODE=first\n")
    agent = agent_of(bench, file)
    bench.trainer(START.format(name="a")).communicate(timeout=30)
    told(agent, "no answer")
    file.write_text(f'ETT_URL="{bench.receiver.url}"\nETT_NODE=second\n')
    agent.send_signal(signal.SIGHUP)
    assert "'first' until a restart" in told(agent, "reload: node")
    until(lambda: bench.receiver.of("attempt_end"))
    assert {"first"} == {one.node for one in bench.receiver.of("heartbeat")}

    other = Receiver()
    try:
        file.write_text(f"ETT_URL={other.url}\nETT_NODE=first\n")
        agent.send_signal(signal.SIGHUP)
        told(agent, f"-> {other.url}")  # it had reloaded before
        bench.trainer(START.format(name="b")).communicate(timeout=30)
        until(lambda: other.of("attempt_end"))
    finally:
        bench.stop(agent)
        other.close()
    assert {"a"} == {one.attempt for one in bench.receiver.of("attempt_end")}
    assert {"b"} == {one.attempt for one in other.of("attempt_end")}


def test_wrong_settings_are_not_taken_up(bench: Bench) -> None:
    """The agent says which, and goes on with what it had."""
    file = bench.folder / "agent.env"
    file.write_text(f"ETT_URL={bench.receiver.url}\n")
    agent = agent_of(bench, file)
    told(agent, "0 events wait")
    for text, why in (
        ("ETT_URL=ftp://x", "--url (ETT_URL) must be http(s)"),
        ("ETT_AGENT_HEARTBEAT_S=never", "--heartbeat"),
        ("ETT_AGENT_HEARTBEET_S=1", "no setting is called ETT_AGENT_HEARTBEET_S"),
        ("what is this", "line 1 is not NAME=value"),
        (None, "No such file"),
    ):
        file.unlink() if text is None else file.write_text(text + "\n")
        agent.send_signal(signal.SIGHUP)
        assert why in told(agent, "not reloaded, the old settings stay")
    bench.trainer(START.format(name="a")).communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)


def test_rotated_token_in_the_file(bench: Bench) -> None:
    """A token of the settings' file is taken up by SIGHUP."""
    file = bench.folder / "agent.env"
    bench.receiver.token = "new"
    file.write_text(f"ETT_URL={bench.receiver.url}\nETT_AGENT_TOKEN=old\n")
    agent = agent_of(bench, file)
    told(agent, "401")
    file.write_text(f"ETT_URL={bench.receiver.url}\nETT_AGENT_TOKEN=new\n")
    agent.send_signal(signal.SIGHUP)
    until(lambda: bench.receiver.of("heartbeat"))
    bench.stop(agent)


def test_systemd_is_told(bench: Bench) -> None:
    """Ready, the watchdog fed, reloading and ready again, stopping: as sd_notify(3) has it."""
    file = bench.folder / "agent.env"
    file.write_text(f"ETT_URL={bench.receiver.url}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(bench.folder / "notify"))
        manager.settimeout(30)
        told_to = {"NOTIFY_SOCKET": str(bench.folder / "notify"), "WATCHDOG_USEC": "200000"}
        agent = agent_of(bench, file, **told_to)
        assert manager.recv(1000).decode().startswith("READY=1\nSTATUS=node ")
        assert [b"WATCHDOG=1"] * 3 == [manager.recv(1000) for _ in range(3)]
        agent.send_signal(signal.SIGHUP)
        # however often it is fed meanwhile
        news = (said for said in iter(lambda: manager.recv(1000).decode(), "") if said != "WATCHDOG=1")
        assert next(news).startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert next(news).startswith("READY=1\n")
        agent.send_signal(signal.SIGTERM)
        assert next(news).startswith("STOPPING=1\n")
        agent.communicate(timeout=30)
        assert 0 == agent.returncode
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(1000)


def test_precedence(tmp_path: Path) -> None:
    """An option, else the file, else the environment."""
    (tmp_path / "env").write_text("ETT_NODE=file\nETT_AGENT_POLL_S=2\n; a comment\n\nOTHER=x\n")
    environ = {
        "ETT_AGENT_CONFIG": str(tmp_path / "env"),
        "ETT_NODE": "environment",
        "ETT_AGENT_TIMEOUT_S": "3",
    }
    config = AgentConfig.from_args(["--poll", "1"], environ)
    assert ("file", 1.0, 3.0) == (config.node, config.poll_s, config.timeout_s)
    assert config.needs_restart(AgentConfig.from_args(["--node", "x"], environ)) == ["node"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("off", None),
        ("", None),
        (":9477", ("", 9477)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9477", ("::1", 9477)),
    ],
)
def test_addresses(said: str, expected: tuple[str, int] | None) -> None:
    assert expected == AgentConfig.from_args(["--metrics", said], {}).metrics


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("none", ()),
        ("slurm, kernel_log", ("kernel_log", "slurm")),
        ("-nvml,-dcgm,-slurm", ("kernel_log", "cgroup", "fabric_manager", "kubernetes")),
        ("all,-cgroup", ("kernel_log", "nvml", "dcgm", "fabric_manager", "slurm", "kubernetes")),
    ],
)
def test_names_of_sources(said: str, expected: tuple[str, ...]) -> None:
    assert expected == AgentConfig.from_args([], {"ETT_AGENT_SOURCES": said}).sources


@pytest.mark.parametrize(
    "option", [("--metrics", "9477"), ("--metrics", ":70000"), ("--sources", "all,-xid")]
)
def test_values_that_cannot_be(option: tuple[str, str]) -> None:
    with pytest.raises(WrongSetting, match=option[0]):
        AgentConfig.from_args(option, {})


def test_env_file() -> None:
    """As systemd reads an EnvironmentFile."""
    text = "A=1\n  B= two words \nC='x=y'\nD=\"q\"\n#E=1\nF=\n"
    assert {"A": "1", "B": "two words", "C": "x=y", "D": "q", "F": ""} == parse_env_file(text)
