"""Which job, attempt and rank this process is: said by the caller, else by `ETT_*`, else by its launcher.

The job stays over restarts and the attempt is new with every launch; both must come out the same on all ranks
and nodes without talking to anybody. Known launchers: Slurm, JobSet on Kubernetes (its names reach a pod by the
downward API only, see the README), Ray, torchrun (torchelastic) and MPI. Pure: the environment and the process
are arguments.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FACTS = ("name", "cluster", "team", "model", "framework")  # what a `job` event tells beside its labels

# an indexed Job of Kubernetes gives each pod its index: its rank where there is one process a pod
RANKS = ("ETT_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")
LAUNCHERS = (
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",
    "JOBSET_NAME",
    "OMPI_COMM_WORLD_SIZE",
    "ETT_ATTEMPT_LAUNCHED_NS",
)


class Identity(NamedTuple):
    """Who records. `gpus` counts the whole attempt, `gpus_on_node` this node; `allocated` is wall ns or None.

    `launched_at` (wall ns) is when an `ett-run` above this process began.
    `released_between`: whether the hardware was given back before this attempt; None is unknown.
    `by_launcher`: a launcher started this process for training (and not a notebook or a shell, long before).
    """

    job: str
    attempt: str
    rank: int = 0
    world_size: int | None = None
    gpus: int | None = None
    gpus_on_node: int | None = None
    allocated: int | None = None
    launched_at: int | None = None
    released_between: bool | None = None
    by_launcher: bool = False


def identify(environ: Mapping[str, str], *, script: str, process: str, ray: str = "") -> Identity:
    """The identity that the environment tells.

    `script` names the program, `process` this launch of it on this machine (for plain `python train.py`), `ray`
    the Ray session and job whose worker this is.
    """
    restarts = _number(environ, "TORCHELASTIC_RESTART_COUNT")
    launch = (
        environ.get("ETT_ATTEMPT")
        or _slurm_attempt(environ)
        or _jobset_attempt(environ)
        or _ray_attempt(environ, ray)
        or _elastic_run(environ)
        or f"process:{process}"
    )
    job = environ.get("ETT_JOB") or _slurm_job(environ) or _jobset_job(environ) or (ray and f"ray:{ray}")
    world = _number(environ, "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    local = _number(environ, "LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    return Identity(
        job=job or _elastic_run(environ) or script,
        attempt=f"{launch}/r{restarts}" if restarts else launch,
        rank=_number(environ, *RANKS) or 0,
        world_size=world,
        gpus=_number(environ, "ETT_GPUS"),
        gpus_on_node=_number(environ, "ETT_GPUS_ON_NODE", "SLURM_GPUS_ON_NODE") or local,
        # a restart inside a run has begun with its processes, and not with the run
        allocated=_number(environ, "ETT_ATTEMPT_ALLOCATED_NS") if not restarts else None,
        launched_at=_number(environ, "ETT_ATTEMPT_LAUNCHED_NS") if not restarts else None,
        # torchelastic starts new workers on the nodes that it has
        released_between=False if restarts else None,
        by_launcher=any(name in environ for name in LAUNCHERS),
    )


def facts(environ: Mapping[str, str]) -> dict[str, str]:
    """What `ETT_CLUSTER`, `ETT_TEAM` ... say of the job; else what Slurm or JobSet call it."""
    found = {name: environ.get(f"ETT_{'JOB_NAME' if name == 'name' else name.upper()}") for name in FACTS}
    found["cluster"] = found["cluster"] or environ.get("SLURM_CLUSTER_NAME")
    found["name"] = found["name"] or environ.get("SLURM_JOB_NAME") or environ.get("JOBSET_NAME")
    return {name: value for name, value in found.items() if value}


def spool_folder(environ: Mapping[str, str]) -> tuple[str, bool]:
    """(folder, whether it is the default one): `ETT_SPOOL_DIR`, else one for this user in scratch."""
    said = environ.get("ETT_SPOOL_DIR")
    if said:
        return os.path.abspath(os.path.expanduser(said)), False
    scratch = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - one's own folder, checked before it is used
    return os.path.join(scratch, f"ett-spool-{os.getuid()}"), True


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = environ.get(name, "").strip()
        if text.isascii() and text.isdigit():
            return int(text[:20])
    return None


def _slurm_id(environ: Mapping[str, str]) -> str | None:
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID")


def _slurm_job(environ: Mapping[str, str]) -> str | None:
    found = _slurm_id(environ)
    return f"{environ.get('SLURM_CLUSTER_NAME', 'slurm')}/{found}" if found else None


def _slurm_attempt(environ: Mapping[str, str]) -> str | None:
    found = _slurm_id(environ)
    return f"slurm:{found}:{environ.get('SLURM_RESTART_COUNT', '0')}" if found else None


def _jobset_job(environ: Mapping[str, str]) -> str | None:
    # a name may be used again once the JobSet is deleted; the uid tells them apart where the pod knows it
    found = ("POD_NAMESPACE", "JOBSET_NAME", "JOBSET_UID")
    return (
        "/".join(environ[name] for name in found if environ.get(name)) if environ.get("JOBSET_NAME") else None
    )


def _jobset_attempt(environ: Mapping[str, str]) -> str | None:
    found = _jobset_job(environ)
    return f"jobset:{found}:{environ.get('JOBSET_RESTART_ATTEMPT') or '0'}" if found else None


def _ray_attempt(environ: Mapping[str, str], ray: str) -> str | None:
    # each group of workers that Ray Train starts meets at an address of its own, the same for all ranks
    if not ray:
        return None
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    return f"ray:{ray}:{address}:{port}" if address and port else f"ray:{ray}"


def _elastic_run(environ: Mapping[str, str]) -> str | None:
    # torchrun calls a run without a rendezvous id "none": that names every such run, so it names nothing
    found = environ.get("TORCHELASTIC_RUN_ID")
    return f"torchelastic:{found}" if found and found != "none" else None
