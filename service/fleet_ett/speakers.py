"""Who may speak for whom: an ingest token's clusters and nodes against what a batch says.

A token of clusters sends only as nodes, of jobs, and about nodes, that are no other cluster's; one that also lists
nodes sends only as them. What the books, a `job` event or the first part of a job's key (`<cluster>/...`, where a token
is for that cluster) say of a job counts; what is nobody's is claimed by who first speaks as the node, or of the job,
with a token of a single cluster. To name a node in a list claims nothing. A token of all is not narrowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fleet_ett.errors import Denied
from fleet_ett.ingest import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ett_collector.wire import Event
    from fleet_ett.access import Grant, Note
    from fleet_ett.ingest import Batch

JOB, NODE = "job", "node"
OTHER_JOB = "the job is of a cluster that is not one of this token's"
OTHER_NODE = "it names a node of a cluster that is not one of this token's"


class Claims(Protocol):
    """Whose the jobs and nodes (`kind`: job, node) are."""

    def clusters(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """The cluster of each name that is somebody's. Raises `Unavailable`."""
        ...

    def claim(self, kind: str, wanted: Mapping[str, str], who: str) -> dict[str, str]:
        """Take names for clusters where they are nobody's; the cluster of each, whoever was first."""
        ...


def narrow(batch: Batch, grant: Grant, claims: Claims, note: Note) -> Batch:
    """The batch without what the grant does not cover: that is refused by position.

    Raises `Denied` for a node that the token does not speak for. Both are noted in the audit log.
    """
    node = batch.agent.node
    if not _speaks_for(node, grant, claims):
        note(grant.who, "refused: speaks for another node", {"node": node})
        msg = f"this token does not speak for the node {node[:200]!a}"
        raise Denied(msg)
    jobs = {job for block in batch.blocks for job in set(block.values("job"))}
    owners = _claimed(jobs, {}, grant, claims)
    if any(owner not in grant.clusters for owner in owners.values()):
        batch = batch.singly()
    if batch.events:
        _keep_own(batch, grant, claims, note)
    return batch


def _speaks_for(node: str, grant: Grant, claims: Claims) -> bool:
    if grant.nodes and node not in grant.nodes:
        return False
    owner = claims.clusters(NODE, [node]).get(node)
    if owner is None:
        owner = _claimed([node], {}, grant, claims, kind=NODE).get(node)
    return owner is None or owner in grant.clusters


def _keep_own(batch: Batch, grant: Grant, claims: Claims, note: Note) -> None:
    told = list(zip(batch.events, batch.positions, strict=True))
    strange = {at: reason for event, at in told if (reason := _moved(event, grant))}
    nodes = {node for event, _ in told for node in _nodes_of(event)}
    hosts = claims.clusters(NODE, nodes) if nodes else {}
    for event, at in told:
        if any(hosts.get(node, None) not in (None, *grant.clusters) for node in _nodes_of(event)):
            strange.setdefault(at, OTHER_NODE)
    own = [event for event, at in told if at not in strange]
    said = {event.job: cluster for event in own if event.job and (cluster := _cluster_of(event))}
    owners = _claimed({job for event in own for job in _jobs_of(event)}, said, grant, claims)
    for event, at in told:
        if any(owners.get(job, None) not in (None, *grant.clusters) for job in _jobs_of(event)):
            strange.setdefault(at, OTHER_JOB)
    if not strange:
        return
    reasons = sorted(set(strange.values()))
    note(grant.who, "refused: another cluster's", {"node": batch.agent.node, "reason": reasons[0]})
    batch.events[:] = [event for event, at in told if at not in strange]
    batch.positions[:] = [at for _, at in told if at not in strange]
    batch.refused.extend(
        Refused(at, event.seq, strange[at], {"type": event.type, "job": event.job})
        for event, at in told
        if at in strange
    )


def _claimed(
    names: Iterable[str], said: Mapping[str, str], grant: Grant, claims: Claims, *, kind: str = JOB
) -> dict[str, str]:
    """The cluster of each name; those that are nobody's are claimed where the cluster is plain (`said`)."""
    names = set(names)
    if not names:
        return {}
    owners = claims.clusters(kind, names)
    sole = grant.clusters[0] if len(grant.clusters) == 1 else None
    wanted = {name: cluster for name in names - owners.keys() if (cluster := said.get(name, sole))}
    return owners | claims.claim(kind, wanted, grant.who) if wanted else owners


def _moved(event: Event, grant: Grant) -> str | None:
    """Why a `job` event may not name its cluster."""
    cluster = _cluster_of(event)
    if cluster is None or cluster in grant.clusters:
        return None
    return f"cluster {cluster[:100]!a} is not one of this token's"


def _cluster_of(event: Event) -> str | None:
    cluster = event.body.get("cluster") if event.type == "job" else None
    return cluster if isinstance(cluster, str) and cluster else None


def _jobs_of(event: Event) -> Iterator[str]:
    if event.job:
        yield event.job
    if event.type == "heartbeat":
        yield from (one["job"] for one in event.body.get("jobs", ()))


def _nodes_of(event: Event) -> Iterator[str]:
    """The nodes that an event names beside the one that sends it."""
    if event.type == "attempt_start":
        yield from event.body.get("nodes", ())
        yield from event.body.get("gpus_by_node", ())
    elif event.type == "attempt_end" and "failed_node" in event.body:
        yield event.body["failed_node"]
