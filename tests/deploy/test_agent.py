"""The agent's unit and its DaemonSet: what they set is what the agent knows, and an agent runs with it."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ett_collector.agent.config import AgentConfig
from ett_collector.agent.options import VARIABLES
from tests.collectors.conftest import Bench, bench, receiver, until
from tests.ports import free_port
from tests.prometheus.test_agent_page import listens

__all__ = ["bench", "receiver"]
DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "ett-agent.service"
AGENT = (sys.executable, "-m", "ett_collector.agent.main")


def unit() -> list[tuple[str, str]]:
    """The assignments of the unit in order."""
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def daemon_set() -> dict[str, Any]:
    """The pod of the DaemonSet."""
    for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "ett-agent.yaml").read_text()):
        if one["kind"] == "DaemonSet":
            return dict(one["spec"]["template"]["spec"])
    pytest.fail("there is none")


def elsewhere(environ: dict[str, str], folder: Path) -> dict[str, str]:
    """The same settings with their folders moved below one."""
    return {name: f"{folder}{value}" if value.startswith("/") else value for name, value in environ.items()}


def test_unit_is_valid(tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("no systemd-analyze")
    there = tmp_path / UNIT.name
    there.write_text(UNIT.read_text().replace("/opt/fleet-ett/bin/ett-agent", "/bin/true"))
    done = subprocess.run([systemd, "verify", "--man=no", there], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)


def test_unit_starts_an_agent(bench: Bench) -> None:
    """With its variables: it is ready in systemd's words, serves its page, takes SIGHUP, and ends in the time given."""
    said = dict(unit())
    environ = dict(value.split("=", 1) for name, value in unit() if name == "Environment")
    assert environ.keys() <= VARIABLES
    assert f"/run/{said['RuntimeDirectory']}" == environ["ETT_SPOOL_DIR"]
    assert f"/var/lib/{said['StateDirectory']}" == environ["ETT_AGENT_STATE_DIR"]
    config = AgentConfig.from_args([], {})
    assert float(said["TimeoutStopSec"]) > config.drain_s + config.timeout_s
    assert "/bin/kill -HUP $MAINPID" == said["ExecReload"]

    port = free_port()
    environ = {**elsewhere(environ, bench.folder), "ETT_AGENT_METRICS": f":{port}"}
    file = Path(environ["ETT_AGENT_CONFIG"])
    file.parent.mkdir(parents=True)
    file.write_text(f"ETT_URL={bench.receiver.url}\nETT_AGENT_HEARTBEAT_S=0.5\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(bench.folder / "notify"))
        manager.settimeout(30)
        agent = bench.spawn(*AGENT, NOTIFY_SOCKET=str(bench.folder / "notify"), **environ)
        assert manager.recv(1000).startswith(b"READY=1")
    until(lambda: listens(port) and bench.receiver.of("heartbeat"))
    assert ", 0 wait in " in bench.stop(agent)


def test_daemon_set_starts_an_agent(bench: Bench) -> None:
    """With its variables and arguments; the probe is answered, and each folder is one that is mounted."""
    pod = daemon_set()
    (container,) = pod["containers"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert set(mounts.values()) == {one["name"] for one in pod["volumes"]}
    values = {one["name"]: one.get("value", "") for one in container["env"]}
    assert values.keys() <= VARIABLES
    assert (
        "spec.nodeName"
        == {one["name"]: one for one in container["env"]}["ETT_NODE"]["valueFrom"]["fieldRef"]["fieldPath"]
    )
    config = AgentConfig.from_args(container["args"], {"ETT_AGENT_METRICS": values["ETT_AGENT_METRICS"]})
    assert config.kmsg in mounts
    assert f"{config.sysfs}/fs/cgroup" in mounts
    for name in ("ETT_SPOOL_DIR", "ETT_AGENT_STATE_DIR"):
        assert values[name] in mounts
    for name in ("ETT_AGENT_TOKEN_FILE", "ETT_AGENT_CA"):
        assert str(Path(values[name]).parent) in mounts
    assert pod["hostPID"] is True
    assert pod["terminationGracePeriodSeconds"] > config.drain_s + config.timeout_s
    (port,) = container["ports"]
    assert config.metrics == ("", port["containerPort"])

    free = free_port()
    values |= {"ETT_URL": bench.receiver.url, "ETT_NODE": "n1", "ETT_AGENT_METRICS": f":{free}"}
    values |= {"ETT_AGENT_TOKEN_FILE": "", "ETT_AGENT_CA": ""}
    agent = bench.spawn(*AGENT, *container["args"], **elsewhere(values, bench.folder))
    until(lambda: listens(free) and bench.receiver.of("heartbeat"))
    line = http.client.HTTPConnection("127.0.0.1", free, timeout=10)
    line.request("GET", container["livenessProbe"]["httpGet"]["path"])
    assert 200 == line.getresponse().status
    line.close()
    bench.stop(agent)
    assert {"n1"} == {one.node for one in bench.receiver.events.values()}
