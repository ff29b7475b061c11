"""Kubernetes: which pod a trainer runs in, from what the kubelet gave it and the name of its cgroup."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ett_collector.agent.sources.contexts import Contexts
from ett_collector.agent.sources.source import Missing, Read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ett_collector.agent.sources.source import Surroundings

NAMESPACE = "var/run/secrets/kubernetes.io/serviceaccount/namespace"
# by the downward API, under the names that Kubernetes' own examples use
LABELS = {
    "POD_NAME": "k8s.pod",
    "POD_NAMESPACE": "k8s.namespace",
    "POD_UID": "k8s.pod_uid",
    "NODE_NAME": "k8s.node",
    "JOBSET_NAME": "k8s.jobset",
    "JOB_NAME": "k8s.job",
}
_POD = re.compile(r"\bpod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})\b")
_CONTAINER = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?:\.scope)?/?$")


def parse_pod(cgroup: str) -> dict[str, str]:
    """Pod and container in the path of a cgroup (either driver of the kubelet's); empty where it is no pod's."""
    pod = _POD.search(cgroup)
    if pod is None:
        return {}
    container = _CONTAINER.search(cgroup)
    found = {"k8s.pod_uid": pod[1].replace("_", "-")}
    return found if container is None else {**found, "k8s.container_id": container[1]}


def parse_context(environ: Mapping[str, str], cgroup: str, namespace: str) -> dict[str, str]:
    """The labels of a trainer in a pod; none outside of Kubernetes."""
    pod = parse_pod(cgroup)
    if not pod and not environ.get("KUBERNETES_SERVICE_HOST"):
        return {}
    said = {label: environ[name] for name, label in LABELS.items() if environ.get(name)}
    if namespace:
        said.setdefault("k8s.namespace", namespace)
    if environ.get("HOSTNAME"):
        said.setdefault("k8s.pod", environ["HOSTNAME"])  # the pod's name, unless it says otherwise
    return {**pod, **said}


class Kubernetes:
    """Looks into each new trainer once."""

    def __init__(self, around: Surroundings, _cursor: dict[str, Any] | None) -> None:
        self._procfs = around.procfs
        self._contexts = Contexts(around, self._labels_of)

    def open(self) -> None:
        """Raises `Missing` where no kubelet runs the agent or anything beside it."""
        kubelets = (os.path.join("/", NAMESPACE), "/var/lib/kubelet")
        if "KUBERNETES_SERVICE_HOST" not in os.environ and not any(map(os.path.exists, kubelets)):
            msg = "no kubelet here, and no pod around the agent"
            raise Missing(msg)

    def read(self) -> Read:
        """Contexts of new attempts."""
        return Read([context for context, _ in self._contexts.look()])

    def close(self) -> None:
        """Nothing is held."""

    def _labels_of(self, pid: int, environ: Mapping[str, str]) -> dict[str, str]:
        place = os.path.join(self._procfs, str(pid))
        cgroup = _first_line(os.path.join(place, "cgroup"))
        return parse_context(environ, cgroup, _first_line(os.path.join(place, "root", NAMESPACE)))


def _first_line(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
