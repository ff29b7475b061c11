"""Slurm and Kubernetes: whose the trainers are, and how a scheduler says that they have ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.sources.contexts import Contexts
from ett_collector.agent.sources.environ import parse_environ
from ett_collector.agent.sources.kubernetes import parse_context as parse_pod_context
from ett_collector.agent.sources.kubernetes import parse_pod
from ett_collector.agent.sources.slurm import parse_context, parse_job
from ett_collector.agent.sources.source import Subject, Surroundings
from tests.collectors.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.collectors.conftest import Bench

UID = "a8697f49-441d-4d4f-90d2-6d8e1fa3bbe7"
CONTAINER = "3fc28fa1c647ceede9f6b340d0b16c9f1f663698972d22a52e296f291638e014"
JOB = (
    "JobId=8812 JobName=pretrain UserId=u(1000) GroupId=u(1000) Priority=4294 Nice=0 Account=ads QOS=high "
    "JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:15 "
    "RunTime=00:01:12 TimeLimit=00:01:00 TimeMin=N/A SubmitTime=2023-01-21T22:41:48 EligibleTime=2023-01-21T22:41:48 "
    "StartTime=2023-01-21T22:41:48 EndTime={end} Deadline=N/A SuspendTime=None SecsPreSuspend=0 Partition=all "
    "NodeList=node01 BatchHost=node01 NumNodes=1 NumCPUs=1 NumTasks=1 Command=/root/x.sh WorkDir=/root\n"
)
SCONTROL = """#!/bin/sh
[ "$*" = "--oneliner show job 8812" ] || exit 1
cat {answer}
"""
TRAINER = "import ett_collector as ett\nett.start()\nsay('up'); wait()\nett.step(0)"


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


@pytest.mark.parametrize(
    ("state", "reason", "ended"),
    [
        ("TIMEOUT", "TimeLimit", True),
        ("OUT_OF_MEMORY", "OutOfMemory", True),
        ("PREEMPTED", "None", True),
        ("CANCELLED", "None", True),
        ("COMPLETED", "None", True),
        ("RUNNING", "None", False),
        ("COMPLETING", "None", False),
        ("PENDING", "BeginTime", False),  # requeued, and not said why
    ],
)
def test_job_of_slurm(state: str, reason: str, *, ended: bool) -> None:
    """As scontrol prints it on one line, or on many."""
    line = JOB.format(state=state, reason=reason, end="2023-01-21T22:43:00")
    expected = (state, int(time.mktime((2023, 1, 21, 22, 43, 0, 0, 0, -1)))) if ended else None
    assert expected == parse_job(line) == parse_job(line.replace(" ", "\n   "))


def test_answers_that_are_no_job() -> None:
    assert None is parse_job("slurm_load_jobs error: Invalid job id specified\n")
    assert None is parse_job(JOB.format(state="FAILED", reason="None", end="Unknown"))


def test_labels_of_slurm() -> None:
    environ = parse_environ(
        b"SLURM_JOB_ID=8812\0SLURM_JOB_PARTITION=h100\0SLURM_JOB_QOS=\0PATH=/bin\0broken\0"
    )
    assert {"slurm.job_id": "8812", "slurm.partition": "h100"} == parse_context(environ)
    assert {} == parse_context({"SLURM_JOB_PARTITION": "h100"})
    assert {} == parse_context({"SLURM_JOB_ID": "--help"})


def test_an_attempt_is_told_once_by_the_first_of_its_trainers_that_knows(tmp_path: Path) -> None:
    """Each trainer is looked into once, and not before its pid is known; who is gone is forgotten."""
    looked: list[int] = []

    def labels_of(pid: int, environ: object) -> dict[str, str]:
        looked.append(pid)
        assert {"RANK": str(pid)} == environ
        return {} if pid == 1 else {"told.by": str(pid)}

    for pid in (1, 2, 3, 4):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(b"RANK=%d\0" % pid)
    around = Surroundings(procfs=str(tmp_path))
    contexts = Contexts(around, labels_of)
    here = tuple(Subject(f"t{pid}", "j", "a", pid, pid) for pid in (1, 2, 3))
    around.subjects = (*here, Subject("t4", "j", "b", 0, None))
    assert [("j", "a", {"told.by": "2"})] == [tuple(context) for context, _ in contexts.look()]
    around.subjects = (*here, Subject("t4", "j", "b", 0, 4))
    assert [("j", "b", {"told.by": "4"})] == [tuple(context) for context, _ in contexts.look()]
    assert [1, 2, 3, 4] == looked
    around.subjects = ()
    assert [] == contexts.look()
    around.subjects = here[1:2]
    assert [("j", "a", {"told.by": "2"})] == [tuple(context) for context, _ in contexts.look()]


def test_slurm_says_how_it_ended(bench: Bench) -> None:
    """Labels while it runs; once it is gone scontrol is asked, and its word goes out beside ours."""
    programs, answer = bench.folder / "bin", bench.folder / "answer"
    programs.mkdir()
    (programs / "scontrol").write_text(SCONTROL.format(answer=answer))
    (programs / "scontrol").chmod(0o755)
    released = int(time.time()) + 60
    answer.write_text(JOB.format(state="PREEMPTED", reason="None", end=stamp(released)))
    agent = bench.agent("--sources", "slurm", PATH=f"{programs}:/usr/bin:/bin")
    told = {"SLURM_JOB_ID": "8812", "SLURM_JOB_PARTITION": "h100", "SLURM_NODEID": "0"}
    trainer = bench.trainer(TRAINER, **told)
    until(lambda: [e for e in bench.receiver.of("attempt_start") if e.body.get("labels")])
    trainer.kill()
    until(lambda: len(bench.receiver.of("attempt_end")) == 2)
    bench.stop(agent)

    labelled = [e for e in bench.receiver.of("attempt_start") if e.body.get("labels")]
    assert [{"slurm.job_id": "8812", "slurm.partition": "h100"}] == [e.body["labels"] for e in labelled]
    ours, theirs = bench.receiver.of("attempt_end")
    assert ("failed", 9) == (ours.body["outcome"], ours.body["signal"])
    assert ("preempted", "PREEMPTED") == (theirs.body["outcome"], theirs.body["scheduler_state"])
    assert released * 10**9 == theirs.start
    assert (ours.job, ours.attempt) == (theirs.job, theirs.attempt)


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
        f"0::/kubepods/burstable/pod{UID}/{CONTAINER}",
        f"/lxc.payload.x-lxc/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{CONTAINER}.scope",
    ],
)
def test_pod_in_a_cgroup(path: str) -> None:
    """Both drivers of the kubelet's, and several runtimes."""
    assert {"k8s.pod_uid": UID, "k8s.container_id": CONTAINER} == parse_pod(path)


def test_labels_of_a_pod() -> None:
    """What the downward API said goes before what can be guessed."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0", "POD_NAMESPACE": "ads"}
    assert {"k8s.pod": "train-0", "k8s.namespace": "ads"} == parse_pod_context(environ, "0::/", "default")
    assert {} == parse_pod_context({"HOSTNAME": "h"}, "0::/user.slice", "")


def test_pod_of_a_trainer(bench: Bench) -> None:
    """Its labels are its attempt's."""
    agent = bench.agent("--sources", "kubernetes", KUBERNETES_SERVICE_HOST="10.0.0.1")
    told = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "POD_NAME": "train-0",
        "POD_NAMESPACE": "ads",
        "NODE_NAME": "n7",
    }
    bench.trainer(TRAINER, ETT_JOB="j", ETT_ATTEMPT="a", **told)
    until(lambda: [e for e in bench.receiver.of("attempt_start") if e.body.get("labels")])
    bench.stop(agent)

    labels = bench.receiver.of("attempt_start")[-1].body["labels"]
    assert ("train-0", "ads", "n7") == tuple(
        labels[name] for name in ("k8s.pod", "k8s.namespace", "k8s.node")
    )
