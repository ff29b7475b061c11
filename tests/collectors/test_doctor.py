"""`ett-agent doctor` on real nodes: what it sees, what is missing, what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ett_collector.agent.checks.folders import file_system
from ett_collector.agent.hostpids import innermost_pid
from tests.collectors.conftest import until

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench

TRAINER = "import ett_collector as ett\nett.start('j', attempt='a', rank={rank})\nsay('up'); wait()"


def examined(bench: Bench, *options: str, **environ: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """(exit status, lines by what was looked at)."""
    doctor = bench.agent(*options, "doctor", "--json", **environ)
    out, errors = doctor.communicate(timeout=60)
    assert "" == errors
    found: dict[str, list[dict[str, Any]]] = {}
    for line in json.loads(out)["checks"]:
        found.setdefault(line["check"], []).append(line)
        assert line["status"] in ("ok", "warn", "fail")
        assert line["do"] or line["status"] == "ok", line
    return doctor.returncode, found


def test_sound_node(bench: Bench) -> None:
    """An agent that runs, trainers of a job, a service that answers: nothing fails."""
    agent = bench.agent("--metrics", "127.0.0.1:0")
    for rank in (0, 3):
        bench.trainer(TRAINER.format(rank=rank))
    until(
        lambda: [
            e
            for e in bench.receiver.of("heartbeat")
            if e.body["jobs"] and len(e.body["jobs"][0]["ranks"]) == 2
        ]
    )
    status, found = examined(bench)
    bench.stop(agent)

    assert 0 == status
    assert ["j, attempt a: 2 live, ranks 0, 3"] == [one["said"] for one in found["trainers"]]
    assert ("ok", "runs") == (found["agent"][0]["status"], found["agent"][0]["said"])
    assert str(bench.spool) in found["spool"][0]["said"]
    assert "version 0.1.0" in found["service"][0]["said"]
    assert "takes events of node-a without a token" == found["token"][0]["said"]
    assert "0.000 s" in found["clock"][0]["said"]
    assert {"kernel log", "cgroup", "nvml", "dcgm", "fabric manager", "slurm", "kubernetes"} < found.keys()


def test_node_on_which_nothing_is_right(bench: Bench) -> None:
    """No spool, no agent, no service, no kernel log; and the status is 1."""
    nothing = ("--kmsg", "/no/such/kmsg", "--sysfs", "/no/sys", "--metrics", "127.0.0.1:9")
    status, found = examined(bench, "--url", "http://127.0.0.1:9", *nothing)

    assert 1 == status
    wrong = {name for name, lines in found.items() if lines[-1]["status"] != "ok"}
    assert {"spool", "agent", "service", "metrics", "kernel log", "cgroup"} <= wrong
    assert "refused" in found["service"][0]["said"]
    assert "/no/such/kmsg: No such file or directory" in found["kernel log"][0]["said"]
    assert "hostPID" not in str(found)


def test_token_that_is_not_taken(bench: Bench) -> None:
    """Which one it lacks, and how to make it."""
    bench.receiver.token = "right"
    status, found = examined(bench)
    wrong, with_wrong = examined(bench, ETT_AGENT_TOKEN="wrong")

    assert (1, 1) == (status, wrong)
    assert "none is set: fleet-ett token create" in found["token"][0]["do"]
    assert "wrong or ended one" in with_wrong["token"][0]["do"]
    assert 0 == examined(bench, ETT_AGENT_TOKEN="right")[0]


def test_what_waits_and_what_was_refused(bench: Bench) -> None:
    """Both are counted without an agent, and nothing of it is changed by looking."""
    bench.receiver.refuse_types = {"checkpoint"}
    agent = bench.agent()
    code = "import ett_collector as ett\nett.start('j', attempt='a')\nett.checkpoint_committed(1); ett.end()"
    bench.trainer(code).communicate(timeout=30)
    until(lambda: bench.receiver.of("attempt_end"))
    bench.stop(agent)
    away = bench.agent("--drain", "0.1", url="http://127.0.0.1:9")
    bench.trainer(code.replace("'a'", "'b'")).communicate(timeout=30)
    until(lambda: ["agent"] == [path.name for path in bench.spool.iterdir()])
    bench.stop(away)
    before = {path.name: path.read_bytes() for path in (bench.spool / "agent").iterdir()}
    _, found = examined(bench)

    assert ("warn", "1 events were refused, the last: the test refuses it") == (
        found["dead letters"][0]["status"],
        found["dead letters"][0]["said"],
    )
    assert int(found["outbox"][0]["said"].split()[0]) > 3
    assert before == {path.name: path.read_bytes() for path in (bench.spool / "agent").iterdir()}


def test_trainer_of_another_pid_namespace(bench: Bench) -> None:
    """From the host it is seen with its own pid there; from a namespace beside it only by its lock."""
    code = "import sys\nimport ett_collector as ett\nett.start('j', attempt='a')\nprint(1, flush=1)\nsys.stdin.read()"
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    trainer = bench.spawn(*apart, sys.executable, "-c", code)
    assert trainer.stdout
    if not trainer.stdout.readline():
        pytest.skip("a pid namespace of one's own needs root")
    _, found = examined(bench)
    assert "ok" == found["processes"][0]["status"]
    doctor = [
        *apart,
        sys.executable,
        "-m",
        "ett_collector.agent.main",
        "--url",
        bench.receiver.url,
        "doctor",
        "--json",
    ]
    done = subprocess.run(doctor, env=bench.environ(), capture_output=True, text=True, check=False)
    lines = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    assert ("warn", True) == (lines["processes"]["status"], "hostPID: true" in lines["processes"]["do"])
    assert "1 live" in lines["trainers"]["said"]


def test_for_people(bench: Bench) -> None:
    """Columns, and what to do below what is wrong; a wrong setting is told like for the agent."""
    doctor = bench.agent("doctor")
    out, _ = doctor.communicate(timeout=60)
    assert out.startswith("ok    node             node-a, spools in ")
    assert "-> the first trainer makes it" in out
    wrong = bench.agent("--heartbeat", "0", "doctor")
    assert "--heartbeat" in wrong.communicate(timeout=60)[1]
    assert 2 == wrong.returncode


def test_file_systems() -> None:
    assert "proc" == file_system("/proc/self")
    assert "" != file_system("/")


def test_innermost_pid() -> None:
    assert 7 == innermost_pid("Name:\tpython\nNSpid:\t4711\t93\t7\n")
    assert None is innermost_pid("Name:\tpython\n")
