"""Job, attempt and rank from what launchers put into the environment."""

from __future__ import annotations

import pytest

from ett_collector.identity import Identity, facts, identify

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "TORCHELASTIC_RUN_ID": "dlrm-7",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
SLURM = {
    "SLURM_CLUSTER_NAME": "alpha",
    "SLURM_JOB_ID": "8812",
    "SLURM_RESTART_COUNT": "1",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
    "SLURM_GPUS_ON_NODE": "4",
}


def test_plain_process_is_an_attempt_of_its_own() -> None:
    """Without any launcher the script names the job, and the process the attempt."""
    found = identify({}, script="train.py", process="boot-12-34")

    assert Identity("train.py", "process:boot-12-34") == found


def test_torchrun() -> None:
    """The run id names job and attempt; the first launch may have released the hardware before, or not."""
    found = identify(TORCHRUN, script="train.py", process="p")

    expected = Identity(
        "torchelastic:dlrm-7", "torchelastic:dlrm-7", 5, world_size=16, gpus_on_node=8, by_launcher=True
    )
    assert expected == found


def test_each_elastic_restart_is_an_attempt_on_kept_hardware() -> None:
    """The restart count makes the attempt new, also under a launch that the user named."""
    found = identify(
        {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2", "ETT_ATTEMPT": "mon", "ETT_ATTEMPT_LAUNCHED_NS": "5"},
        script="t",
        process="p",
    )

    assert ("mon/r2", False, None) == (found.attempt, found.released_between, found.launched_at)


def test_a_run_id_that_names_every_run_names_none() -> None:
    """torchrun says "none" where no rendezvous id was given."""
    found = identify({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, script="train.py", process="p")

    assert ("train.py", "process:p") == (found.job, found.attempt)


def test_slurm() -> None:
    """A requeue keeps Slurm's id: the restart count makes the attempt."""
    found = identify(SLURM, script="train.py", process="p")

    assert Identity("alpha/8812", "slurm:8812:1", 3, world_size=8, gpus_on_node=4, by_launcher=True) == found


def test_array_tasks_are_jobs_of_their_own() -> None:
    """Slurm gives each task of an array a job id that it changes: array and task name it."""
    found = identify(
        {**SLURM, "SLURM_ARRAY_JOB_ID": "88", "SLURM_ARRAY_TASK_ID": "2"}, script="t", process="p"
    )

    assert ("alpha/88_2", "slurm:88_2:1") == (found.job, found.attempt)


JOBSET = {
    "POD_NAMESPACE": "ads",
    "JOBSET_NAME": "dlrm",
    "JOBSET_RESTART_ATTEMPT": "2",
    "JOB_COMPLETION_INDEX": "3",
}


def test_jobset() -> None:
    """Each restart of the set is an attempt; without a launcher in the pod its index is the rank."""
    found = identify(JOBSET, script="train.py", process="p")

    assert Identity("ads/dlrm", "jobset:ads/dlrm:2", 3, by_launcher=True) == found
    assert {"name": "dlrm"} == facts(JOBSET)


def test_torchrun_in_a_jobset() -> None:
    """The set names job and launch, torchrun rank and restart."""
    environ = {**JOBSET, **TORCHRUN, "JOBSET_UID": "u1", "TORCHELASTIC_RESTART_COUNT": "1"}
    found = identify(environ, script="train.py", process="p")

    assert ("ads/dlrm/u1", "jobset:ads/dlrm/u1:2/r1", 5) == found[:3]


def test_ray() -> None:
    """Session and job name the job; a group of workers that meets anew is a new attempt."""
    torch = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n1"}
    first = identify({**torch, "MASTER_PORT": "4001"}, script="w", process="p", ray="session_x/01000000")
    second = identify({**torch, "MASTER_PORT": "4002"}, script="w", process="p", ray="session_x/01000000")

    attempt = "ray:session_x/01000000:n1:4001"
    assert Identity("ray:session_x/01000000", attempt, 1, world_size=4, gpus_on_node=2) == first
    assert (first.job, True) == (second.job, first.attempt != second.attempt)


def test_mpi() -> None:
    """mpirun says who is who; the job must be named."""
    environ = {
        "ETT_JOB": "j",
        "ETT_ATTEMPT": "a",
        "OMPI_COMM_WORLD_RANK": "6",
        "OMPI_COMM_WORLD_SIZE": "16",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
    }
    found = identify(environ, script="w", process="p")

    assert Identity("j", "a", 6, world_size=16, gpus_on_node=8, by_launcher=True) == found


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "\u0663"])
def test_a_number_that_is_none_is_left_out(text: str) -> None:
    """A launcher's odd value is not a reason to fail or to guess."""
    assert identify({"RANK": text, "WORLD_SIZE": text}, script="t", process="p")[2:4] == (0, None)


def test_facts_of_the_job() -> None:
    """`ETT_*` goes before what Slurm says."""
    environ = {**SLURM, "ETT_TEAM": "ads", "ETT_CLUSTER": "beta", "SLURM_JOB_NAME": "dlrm"}

    assert {"cluster": "beta", "team": "ads", "name": "dlrm"} == facts(environ)
