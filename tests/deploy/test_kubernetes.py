"""The manifests: they fit together and to the service, and what a pod runs is run here, asked as its probes ask."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from fleet_ett.demo.backstage import LISTENS
from fleet_ett.listening import GRACE_S
from fleet_ett.rules.reading import read_objectives
from fleet_ett.rules.render import render
from fleet_ett.serve import MARGIN_S
from fleet_ett.settings import OPTIONS
from tests.deploy.dockerfile import DEPLOY, Folder, last, read_dockerfile, settings
from tests.deploy.manifests import FOLDER, built, containers, environ, one, pods, read
from tests.ports import free_port

ALL = built()
DEPLOYMENT = one(ALL, "Deployment")
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
SERVICE = POD["containers"][0]
ADMIN = read("admin.yaml")
SERVICE_PODS = [POD, *pods(ADMIN)]


def test_every_file_is_applied_or_an_example() -> None:
    listed = set(yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"])
    there = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    by_themselves = {
        "admin.yaml",
        "ett-agent.yaml",
        "secrets.example.yaml",
    }  # the agents have a namespace of their own
    assert by_themselves == there - listed
    assert {"fleet-ett"} == {each["metadata"].get("namespace", "fleet-ett") for each in ALL}


def test_the_rule_is_rendered_from_the_objectives() -> None:
    """`make rules` after a change."""
    objectives = read_objectives((DEPLOY / "prometheus" / "objectives.yaml").read_text())
    assert render(objectives, kubernetes=True) == (FOLDER / "prometheus-rule.yaml").read_text()


def test_pods_may_do_nothing_but_their_work() -> None:
    """The profile `restricted`, which the namespace enforces; memory has an end, and files are not changed."""
    assert "restricted" in one(ALL, "Namespace")["metadata"]["labels"].values()
    (uid, gid) = last(read_dockerfile("service"), "USER").text.split(":")
    for pod in SERVICE_PODS:
        assert not pod["automountServiceAccountToken"]
        assert not pod["enableServiceLinks"]
        context = pod["securityContext"]
        assert context["runAsNonRoot"]
        assert (int(uid), int(gid)) == (context["runAsUser"], context["runAsGroup"])
        assert "RuntimeDefault" == context["seccompProfile"]["type"]
        for each in containers(pod):
            confined = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False}
            assert confined | {"capabilities": {"drop": ["ALL"]}} == each["securityContext"]
            assert {"cpu", "memory"} == set(each["resources"]["requests"])
            assert "memory" in each["resources"]["limits"]


def test_names_that_one_file_has_are_those_of_the_others() -> None:
    """Volumes, secrets and their keys, ports, selectors."""
    secrets = {each["metadata"]["name"]: set(each["stringData"]) for each in read("secrets.example.yaml")}
    for pod in SERVICE_PODS:
        volumes = {each["name"]: each for each in pod["volumes"]}
        for each in containers(pod):
            mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in each["volumeMounts"]}
            for name, value in environ(each).items():
                assert name in OPTIONS
                folder, _, key = value.rpartition("/")
                if folder:
                    assert key in secrets[mounts[folder]["secret"]["secretName"]], name
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"].items()
    service, monitor = one(ALL, "Service"), one(ALL, "ServiceMonitor")
    for selector in (
        DEPLOYMENT["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        one(ALL, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(ALL, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() == labels
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    ports = {each["name"]: each["containerPort"] for each in SERVICE["ports"]}
    assert {"https": int(environ(SERVICE)["ETT_PORT"])} == ports
    assert ["https"] == [each["targetPort"] for each in service["spec"]["ports"]]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {each["name"] for each in service["spec"]["ports"]}
    for asked in (endpoint["authorization"]["credentials"], endpoint["tlsConfig"]["ca"]["secret"]):
        assert asked["key"] in secrets[asked["name"]]
    assert "fleet-ett.fleet-ett.svc" == endpoint["tlsConfig"]["serverName"]


def test_agents_know_where_the_service_is() -> None:
    (pod,) = pods([one(read("ett-agent.yaml"), "DaemonSet", "ett-agent")])
    url = urllib.parse.urlsplit(environ(pod["containers"][0])["ETT_URL"])
    service = one(ALL, "Service")
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert ("https", f"{name}.{namespace}.svc") == (url.scheme, url.hostname)
    assert url.port in {each["port"] for each in service["spec"]["ports"]}


def test_the_rules_know_the_service_by_its_name() -> None:
    """The operator takes the Service's name for the job's."""
    text = (FOLDER / "prometheus-rule.yaml").read_text()
    assert one(ALL, "Service")["metadata"]["name"] in re.findall(r'up\{job="([^"]+)"\}', text)


def test_no_pod_is_killed_before_it_has_ended_and_one_is_always_there() -> None:
    waits = int(SERVICE["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] > waits + GRACE_S + MARGIN_S
    spec = DEPLOYMENT["spec"]
    assert spec["replicas"] > 1
    assert (
        "Recreate" == spec["strategy"]["type"]
    )  # as deploy/OPERATIONS.md has it: the old ones stop, then it migrates
    assert one(ALL, "PodDisruptionBudget")["spec"]["maxUnavailable"] < spec["replicas"]


def test_probes_ask_the_right_questions() -> None:
    """A database that is away must not restart the service, and must send nobody to it."""
    asked = {name: SERVICE[name]["httpGet"]["path"] for name in SERVICE if name.endswith("Probe")}
    assert {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"} == asked
    assert SERVICE["readinessProbe"]["timeoutSeconds"] > 2  # it answers within about 2 s


def test_a_pod_migrates_serves_is_asked_and_ends(
    service_image: Folder, empty_database: str, tmp_path: Path
) -> None:
    """Its containers one after the other, on an empty database, with the probes and signals of a kubelet."""
    for name in ("database", "tls"):
        (tmp_path / name).mkdir()
    (tmp_path / "database" / "url").write_text(empty_database)
    make_certificate(tmp_path / "tls")
    port = free_port()

    def command(container: dict[str, Any], *words: str) -> tuple[list[str | Path], dict[str, str]]:
        found = read_dockerfile("service")
        program = last(found, "ENTRYPOINT").words[0]
        folder = Path(service_image.inside(settings(found)["PATH"].partition(":")[0]))
        env = {
            name: value.replace("/etc/fleet-ett", str(tmp_path)) for name, value in environ(container).items()
        }
        env |= {"ETT_PORT": str(port)} if "ETT_PORT" in env else {}
        return [folder / program, *(words or container["args"])], env | {"PATH": os.environ["PATH"]}

    def finished(container: dict[str, Any], *words: str) -> str:
        told, env = command(container, *words)
        done = subprocess.run(told, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (migrate,) = POD["initContainers"]
    assert "at migration" in finished(migrate)
    (admin,) = ADMIN[0]["spec"]["containers"]
    finished(admin, "token", "create", "--name", "prometheus", "--scope", "metrics")
    told, env = command(SERVICE)
    process = subprocess.Popen(
        told, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert f"{LISTENS}https://0.0.0.0:{port}" == process.stdout.readline().strip()
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = SERVICE[name]["httpGet"]
            assert "HTTPS" == asked["scheme"]
            assert 200 == status(port, asked["path"], tmp_path / "tls" / "ca.crt")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=POD["terminationGracePeriodSeconds"])
        assert 0 == process.returncode, said
    finally:
        process.kill()
        process.communicate()


def make_certificate(where: Path) -> None:
    """With README's commands."""
    text = (DEPLOY / "README.md").read_text().replace("\\\n", " ")
    for command in (re.search(rf"^{word} .*$", text, re.MULTILINE) for word in ("openssl", "cp tls.crt")):
        assert command
        subprocess.run(["sh", "-c", command[0]], cwd=where, capture_output=True, check=True)


def status(port: int, path: str, authority: Path) -> int:
    """The status of a path, from the name that agents and Prometheus know, checked as the newest Python checks."""
    trusted = ssl.create_default_context(cafile=str(authority))
    trusted.verify_flags |= ssl.VERIFY_X509_STRICT
    (endpoint,) = one(ALL, "ServiceMonitor")["spec"]["endpoints"]
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    with trusted.wrap_socket(plain, server_hostname=endpoint["tlsConfig"]["serverName"]) as secure:
        line = http.client.HTTPConnection("127.0.0.1", port)
        line.sock = secure
        line.request("GET", path)
        return line.getresponse().status


def test_the_readme_applies_what_is_there() -> None:
    text = (DEPLOY / "README.md").read_text()
    for named in re.findall(r"kubectl apply -[fk] deploy/(\S+)", text):
        assert (DEPLOY / named).exists()
    made = set(re.findall(r"create secret generic (\S+)", text))
    assert {each["metadata"]["name"] for each in read("secrets.example.yaml")} | {"ett-agent"} == made
