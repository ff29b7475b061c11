"""OOM kills: real ones in memory cgroups of their own, told by the kernel's log or by the cgroup's count."""

from __future__ import annotations

import contextlib
import re
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.sources.cgroup import Cgroup, find_folder, is_same, parse_cgroup, parse_count
from ett_collector.agent.sources.source import Fault, Subject, Surroundings
from tests.collectors.conftest import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.collectors.conftest import Bench

LIMIT = 64 * 1024 * 1024
TRAINER = """
open({procs!r}, 'w').write(str(os.getpid()))
import ett_collector as ett
ett.start('j', attempt='a', rank=5)
ett.step_begin(0); ett.step(0); say('up'); wait()
{then}
"""
GROW = "kept = [bytearray(1 << 20) for _ in range(1000)]; time.sleep(60)"
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
CHILD = f"""
import subprocess
done = subprocess.run([sys.executable, '-c', {GROW!r}])
say(str(done.returncode)); wait()
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup with little memory; skips where none can be made.

    Its name is new: a new agent looks a quarter of an hour back in the kernel's log.
    """
    root = Path("/sys/fs/cgroup")
    folder = (root / "memory" if (root / "memory").is_dir() else root) / f"ett-test-{uuid.uuid4()}"
    limit = "memory.limit_in_bytes" if (root / "memory").is_dir() else "memory.max"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(LIMIT))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield folder
    until(lambda: is_removed(folder))


def is_removed(folder: Path) -> bool:
    """Whether a cgroup is gone: who dies in it is not listed any more, and keeps it for a moment longer."""
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


class Watcher:
    """An agent with short times, and what it says of itself."""

    def __init__(self, bench: Bench, *options: str) -> None:
        self.process = bench.agent("--metrics", "127.0.0.1:0", *options)
        assert self.process.stderr
        told = (re.search(r"metrics on (\S+) port (\d+)", line) for line in self.process.stderr)
        self._url = "http://{}:{}/metrics".format(*next(one for one in told if one is not None).groups())

    def value(self, name: str, source: str) -> float:
        """Of its page, about a source."""
        with urllib.request.urlopen(self._url, timeout=10) as page:
            (found,) = re.findall(rf'^{name}{{source="{source}"}} (\S+)$', page.read().decode(), re.MULTILINE)
        return float(found)

    def is_up(self, source: str) -> bool:
        return self.value("ett_agent_source_up", source) == 1

    def counts(self, group: Path) -> bool:
        """Whether it looks at how many are killed in a cgroup."""
        fds = Path(f"/proc/{self.process.pid}/fd")
        with contextlib.suppress(OSError):  # one that was closed meanwhile
            return any(fd.readlink().parent == group for fd in fds.iterdir())
        return False


def watched(bench: Bench, group: Path, sources: str = "all") -> subprocess.Popen[str]:
    """An agent that knows the trainer, looks at its cgroup and reads the kernel's log: whom it kills is told once."""
    agent = Watcher(bench, "--sources", sources)
    until(lambda: [e for e in bench.receiver.of("heartbeat") if e.body["jobs"]])
    until(lambda: agent.counts(group))
    until(lambda: sources != "all" or agent.is_up("kernel_log"))
    return agent.process


@pytest.mark.parametrize(("sources", "within"), [("all", CONTAINER), ("cgroup", ()), ("cgroup", CONTAINER)])
def test_trainer_that_the_oom_killer_takes(
    bench: Bench, group: Path, sources: str, within: tuple[str, ...]
) -> None:
    """More than a bare SIGKILL: a fault of its attempt says that memory was out, once, by either source."""
    trainer = bench.trainer(TRAINER.format(procs=str(group / "cgroup.procs"), then=GROW), *within)
    assert trainer.stdout
    assert trainer.stdin
    trainer.stdout.readline()
    agent = watched(bench, group, sources)
    trainer.stdin.write("\n")
    trainer.stdin.flush()
    until(lambda: bench.receiver.of("attempt_end") and bench.receiver.of("fault"))
    bench.stop(agent)

    end, (fault,) = bench.receiver.of("attempt_end")[0], bench.receiver.of("fault")
    assert ("failed", 9, 5) == (end.body["outcome"], end.body["signal"], end.body["failed_rank"])
    assert ("oom", "j", "a", 5) == (fault.body["kind"], fault.job, fault.attempt, fault.rank)
    assert ("Killed process" if sources == "all" else "oom_kill of cgroup") in fault.body["text"]


@pytest.mark.parametrize("sources", ["all", "cgroup"])
def test_child_that_the_oom_killer_takes(bench: Bench, group: Path, sources: str) -> None:
    """A trainer that survives it: the fault is told of the node, and explains the attempt only if that ends soon."""
    trainer = bench.trainer(TRAINER.format(procs=str(group / "cgroup.procs"), then=CHILD))
    assert trainer.stdout
    assert trainer.stdin
    trainer.stdout.readline()
    agent = watched(bench, group, sources)
    trainer.stdin.write("\n")
    trainer.stdin.flush()
    assert "-9" == trainer.stdout.readline().strip()
    until(lambda: bench.receiver.of("fault"))
    bench.stop(agent)
    trainer.kill()

    (fault,) = bench.receiver.of("fault")
    assert ("oom", None, None) == (fault.body["kind"], fault.job, fault.attempt)


def test_kill_in_the_cgroup_of_others(bench: Bench, group: Path) -> None:
    """It says nothing about who records here."""
    agent = Watcher(bench)
    bench.trainer("import ett_collector as ett\nett.start('j', attempt='a')\nsay('up'); wait()")
    until(lambda: [e for e in bench.receiver.of("heartbeat") if e.body["jobs"]])
    until(lambda: agent.is_up("kernel_log"))
    before = agent.value("ett_agent_source_findings_total", "kernel_log")
    other = bench.trainer(f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n{GROW}")
    other.wait(timeout=30)
    until(lambda: agent.value("ett_agent_source_findings_total", "kernel_log") > before)
    bench.stop(agent.process)

    assert -9 == other.returncode
    assert [] == bench.receiver.of("fault")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/slurmstepd.scope/job_7/step_0/user/task_0\n", ("/slurmstepd.scope/job_7/step_0/user/task_0", False)),
        ("9:name=systemd:/\n4:memory:/slurm/uid_0/job_7\n0::/\n", ("/slurm/uid_0/job_7", True)),
        ("0::/../../kubepods-burstable.slice/cri-1.scope\n", ("/kubepods-burstable.slice/cri-1.scope", False)),
        ("5:cpu,memory:/both\n", ("/both", True)),
        ("0::/\n", ("/", False)),
        ("", None),
    ],
)  # fmt: skip
def test_parse_cgroup(text: str, expected: tuple[str, bool] | None) -> None:
    assert expected == parse_cgroup(text)


def test_parse_count() -> None:
    assert 3 == parse_count("low 0\nhigh 12\nmax 40\noom 3\noom_kill 3\noom_group_kill 1\n")
    assert 1 == parse_count("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert None is parse_count("oom_kill_disable 0\nunder_oom 0\n")


def test_is_same() -> None:
    """The kernel tells whole paths, a namespace only its own end; the root is everybody's."""
    assert is_same("/kubepods.slice/a.scope", "/kubepods.slice/a.scope")
    assert is_same("/lxc/kubepods.slice/a.scope", "/kubepods.slice/a.scope")
    assert not is_same("/", "/kubepods.slice/a.scope")
    assert not is_same("", "")


def test_cgroup_of_another_namespace(tmp_path: Path) -> None:
    """An agent in a pod of its own sees only the end of a trainer's path: it is looked for below the mount."""
    pod = tmp_path / "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod-y.slice/cri-b.scope"
    pod.mkdir(parents=True)
    (pod / "memory.events").write_text("oom 0\noom_kill 0\n")
    (tmp_path / "proc/123").mkdir(parents=True)
    (tmp_path / "proc/123/cgroup").write_text("0::/../../pod-y.slice/cri-b.scope\n")
    around = Surroundings(procfs=str(tmp_path / "proc"), sysfs=str(tmp_path / "sys"))
    around.subjects = (Subject("t", "j", "a", 0, 123),)
    source = Cgroup(around, None)
    source.open()
    assert [] == source.read().findings
    (pod / "memory.events").write_text("oom 2\noom_kill 2\n")
    (found,) = source.read().findings
    assert isinstance(found, Fault)
    assert ("/pod-y.slice/cri-b.scope", "oom_kill of cgroup /pod-y.slice/cri-b.scope grew by 2") == (
        found.cgroup,
        found.text,
    )
    around.subjects = ()
    assert [] == source.read().findings
    assert {} == around.cgroups
    source.close()
    assert None is find_folder(str(tmp_path / "sys"), "/", "memory.events")
