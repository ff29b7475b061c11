"""The shipped configuration is what the real programs accept, and what can be put on a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import render
from tests.prometheus.programs import program

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_prometheus_accepts_its_configuration() -> None:
    path = DEPLOY / "prometheus" / "prometheus.yml"
    done = subprocess.run(
        [program("promtool"), "check", "config", path], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_alertmanager_accepts_its_configuration_and_routes_by_severity() -> None:
    path = DEPLOY / "alertmanager" / "alertmanager.yml"
    amtool = program("amtool")
    subprocess.run([amtool, "check-config", path], capture_output=True, check=True)
    for severity, receiver in (("page", "pages"), ("ticket", "tickets")):
        command = [
            amtool,
            "config",
            "routes",
            "test",
            f"--config.file={path}",
            f"severity={severity}",
            "owner=x",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert receiver == done.stdout.strip()


def test_a_prometheus_rule_holds_the_same_groups() -> None:
    objectives = read_objectives((DEPLOY / "prometheus" / "objectives.yaml").read_text())
    told = yaml.safe_load(render(objectives, kubernetes=True))
    assert "PrometheusRule" == told["kind"]
    assert yaml.safe_load(render(objectives)) == told["spec"]
