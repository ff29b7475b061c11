"""Who may speak for whom: an ingest token's nodes and clusters against what a batch says.

A token of nodes sends only as them. A token of clusters sends only as nodes, and only of jobs, that are no
other cluster's: whoever names one first with a token of a single cluster claims it for that cluster, and what
the books or a `job` event already say of a job counts as claimed. A token of all is not narrowed and claims nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fleet_ett.errors import Denied
from fleet_ett.ingest import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ett_collector.wire import Event
    from fleet_ett.access import Grant
    from fleet_ett.ingest import Batch


class Claims(Protocol):
    """Whose the jobs and nodes (`kind`: job, node) are, and what was tried."""

    def clusters(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """The cluster of each name that is somebody's."""
        ...

    def claim(self, kind: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """Take names for clusters where they are nobody's; the cluster of each, whoever was first."""
        ...

    def audit(self, who: str, what: str, detail: dict[str, str]) -> None:
        """Note what somebody tried."""
        ...


def narrow(batch: Batch, grant: Grant, claims: Claims) -> None:
    """Take out of `batch` what the grant does not cover: refused by position.

    Raises `Denied` for a node that the token does not speak for; that is noted in the audit log.
    """
    node = batch.agent.node
    if not _speaks_for(node, grant, claims):
        claims.audit(f"token {grant.token_id}", "refused: speaks for another node", {"node": node})
        msg = f"this token does not speak for the node {node[:200]!a}"
        raise Denied(msg)
    if grant.clusters and batch.events:
        _keep_own_jobs(batch, grant, claims)


def _speaks_for(node: str, grant: Grant, claims: Claims) -> bool:
    if grant.nodes and node not in grant.nodes:
        return False
    if not grant.clusters:
        return True
    owner = claims.clusters("node", [node]).get(node)
    if owner is None and len(grant.clusters) == 1:
        owner = claims.claim("node", {node: grant.clusters[0]})[node]
    return owner is None or owner in grant.clusters


def _keep_own_jobs(batch: Batch, grant: Grant, claims: Claims) -> None:
    strange = {
        position: f"cluster {cluster[:100]!a} is not one of this token's"
        for event, position in zip(batch.events, batch.positions, strict=True)
        if (cluster := _cluster_of(event)) and cluster not in grant.clusters
    }
    own = [
        (event, position)
        for event, position in zip(batch.events, batch.positions, strict=True)
        if position not in strange
    ]
    owners = _owners([event for event, _ in own], grant, claims)
    for event, position in own:
        for job in _jobs_of(event):
            if job in owners and owners[job] not in grant.clusters:
                strange[position] = "the job is of a cluster that is not one of this token's"
    if not strange:
        return
    told = f"token {grant.token_id}"
    claims.audit(told, "refused: another cluster's jobs", {"node": batch.agent.node})
    everything = list(zip(batch.events, batch.positions, strict=True))
    batch.events[:] = [event for event, position in everything if position not in strange]
    batch.positions[:] = [position for _, position in everything if position not in strange]
    batch.refused.extend(
        Refused(position, event.seq, strange[position], {"type": event.type, "job": event.job})
        for event, position in everything
        if position in strange
    )


def _owners(events: list[Event], grant: Grant, claims: Claims) -> dict[str, str]:
    """The cluster of each job that the events name; those that are nobody's are claimed."""
    names = {job for event in events for job in _jobs_of(event)}
    if not names:
        return {}
    said = {event.job: cluster for event in events if (cluster := _cluster_of(event))}
    owners = claims.clusters("job", names)
    sole = grant.clusters[0] if len(grant.clusters) == 1 else None
    wanted = {job: cluster for job in names - owners.keys() if (cluster := said.get(job, sole))}
    return owners | claims.claim("job", wanted) if wanted else owners


def _cluster_of(event: Event) -> str | None:
    cluster = event.body.get("cluster") if event.type == "job" else None
    return cluster if isinstance(cluster, str) else None


def _jobs_of(event: Event) -> Iterator[str]:
    if event.job:
        yield event.job
    if event.type == "heartbeat":
        yield from (one["job"] for one in event.body.get("jobs", ()))
