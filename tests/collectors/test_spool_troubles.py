"""Disks that are full, read-only or taken away: the trainer goes on, the loss is counted and told."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.collectors.test_recorder import run, spools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.collectors.conftest import Bench


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    """A file system of 64 KiB as the spool folder."""
    bench.spool.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(bench.spool)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield bench.spool
    subprocess.run(["umount", "-l", str(bench.spool)], check=True)


def test_full_disk(bench: Bench, small_disk: Path) -> None:
    """Records are lost from the moment the disk is full; once there is room, the loss is told and all goes on."""
    filler = small_disk / "filler"
    code = f"""
from ett_collector import spool
spool.CHECK_S = 0.05
rec = ett.start("j")
for n in range(2000): ett.step(n)
lost = rec.dropped
assert lost > 0
os.truncate({str(filler)!r}, 0)
time.sleep(0.06); ett.step(2000)
assert rec.dropped == lost and rec.errors == 0
say(lost)
"""
    filler.write_bytes(b"x" * 32 * 1024)

    records = run(bench, code)

    steps = [r["n"] for r in records if r["t"] == "step"]
    lost = next(r for r in records if r["t"] == "lost")
    assert steps == [*range(len(steps) - 1), 2000]
    assert (2001 - len(steps), "No space left on device") == (
        lost["n"],
        lost["error"].partition("] ")[2] or lost["error"],
    )


def test_read_only_disk(bench: Bench, small_disk: Path) -> None:
    """Nothing can be written at all: everything is counted as dropped."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    assert [] == run(bench, "rec = ett.start('j'); ett.step(1)\nassert rec.dropped == 2\nett.end()")


def test_limit_on_the_size_of_a_file(bench: Bench) -> None:
    """RLIMIT_FSIZE: another file has room, nothing is lost."""
    records = run(
        bench,
        """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
rec = ett.start("j")
for n in range(2000): ett.step(n)
assert rec.dropped == 0
""",
    )

    assert list(range(2000)) == [r["n"] for r in records if r["t"] == "step"]


def test_folder_that_is_removed(bench: Bench) -> None:
    """A new file is begun in a new folder within seconds, with the head that names the process."""
    records = run(
        bench,
        f"""
import shutil
from ett_collector import recorder
recorder.CHECK_NS = 50_000_000
ett.start("j"); ett.step(0)
shutil.rmtree({str(bench.spool)!r})
time.sleep(0.06); ett.step(1)
""",
    )

    assert ["head", "step"] == [r["t"] for r in records][:2]
    assert [1] == [r["n"] for r in records if r["t"] == "step"]


def test_no_folder_can_be_made(bench: Bench) -> None:
    """A file stands where the folder should be: nothing raises, all is counted."""
    bench.spool.write_text("in the way")

    assert [] == run(bench, "rec = ett.start('j'); ett.step(1)\nassert rec.dropped == 2\nett.end()")


def test_spool_over_its_limit_drops_the_oldest(bench: Bench) -> None:
    """Without any agent the spool stays bounded; what went is told, and what stays can be read without it."""
    run(
        bench,
        """
from ett_collector import spool
spool.FIRST_BYTES = spool.SEGMENT_BYTES = 16 * 1024
rec = ett.start("j")
for n in range(2000):
    with ett.phase("evaluation", work_key="k"): ett.step(n)
while rec._spool._making is not None: time.sleep(0.001)  # the next file is there before the oldest goes
assert rec.dropped > 0
""",
        ETT_SPOOL_BYTES="50000",
    )
    records = spools(bench.spool)[0]
    steps = [r["n"] for r in records if r["t"] == "step"]
    phases = [r for r in records if r["t"] == "phase"]

    assert sum(path.stat().st_size for path in bench.spool.iterdir()) <= 50_000
    assert steps == list(range(steps[0], 2000))
    assert {("evaluation", "k")} == {(r["phase"], r["work_key"]) for r in phases}
    assert [r for r in records if r["t"] == "lost"]


def test_a_process_that_ends_while_its_next_file_is_made(bench: Bench) -> None:
    """The head of that file was begun, and nothing of it counts as a record that was cut off."""
    records = run(
        bench,
        """
from ett_collector import spool
ett.start("j")
written = []
class Slow(spool.Segment):
    def __init__(self, *told, **options):
        super().__init__(*told, **options)
        pack, view, take = self.full
        self.full = (lambda *words: time.sleep(60) if len(written) == 5 else written.append(pack(*words))), view, take
spool.Segment = Slow
for n in range(1600): ett.step(n)
while len(written) < 5: time.sleep(0.001)
os._exit(0)
""",
    )

    assert list(range(1600)) == [r["n"] for r in records if r["t"] == "step"]


def test_more_names_than_each_file_begins_with(bench: Bench) -> None:
    """A name for each graph that is compiled: all are told, and files do not fill with old ones."""
    records = run(
        bench,
        """
ett.start("j")
for n in range(3000):
    with ett.phase("compile_cold", work_key=f"sha256:{n}"): pass
with ett.phase("compile_cold", work_key="sha256:0"): pass
""",
    )
    keys = [r["work_key"] for r in records if r["t"] == "phase" and r["phase"] == "compile_cold"]

    assert [f"sha256:{n}" for n in (*range(3000), 0)] == keys


NOT_MAPPED = "from ett_collector import segment, spool\nsegment.MAPPED = set()\n"


def test_file_system_that_must_not_be_mapped(bench: Bench) -> None:
    """NFS and the like: the same file by plain writes."""
    records = run(
        bench,
        NOT_MAPPED + "ett.start('j')\nfor n in range(5000):\n with ett.phase('x'): ett.step(n)\nett.end()",
    )

    assert list(range(5000)) == [r["n"] for r in records if r["t"] == "step"]
    assert 5000 == len([r for r in records if r.get("phase") == "x" and r["t"] == "phase"])


def test_full_disk_that_must_not_be_mapped(bench: Bench, small_disk: Path) -> None:
    """Nothing was set aside: each write says whether it had room."""
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 32 * 1024)
    records = run(
        bench,
        NOT_MAPPED
        + f"""
rec = ett.start("j")
for n in range(2000): ett.step(n)
lost = rec.dropped
assert lost > 0
os.truncate({str(filler)!r}, 0)
ett.step(2000)
assert (rec.dropped, rec.errors) == (lost, 0)
say(lost)
""",
    )
    steps = [r["n"] for r in records if r["t"] == "step"]

    assert [*range(len(steps) - 1), 2000] == steps


@pytest.mark.parametrize("setting", ["", NOT_MAPPED])
def test_folder_that_a_test_or_a_cleaner_empties_all_the_time(bench: Bench, setting: str) -> None:
    """Files go away under a trainer that records from several threads: nothing raises, nothing dies."""
    run(
        bench,
        setting
        + f"""
import shutil, threading
from ett_collector import recorder, spool
recorder.CHECK_NS = 1_000_000
rec = ett.start("j")
def work():
    for n in range(3000):
        with ett.phase("p"): ett.step(n)
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
while any(t.is_alive() for t in threads):
    shutil.rmtree({str(bench.spool)!r}, ignore_errors=True)
    time.sleep(0.002)
assert rec.errors == 0
""",
    )


def test_default_folder_of_somebody_else_is_not_used(bench: Bench, tmp_path: Path) -> None:
    """A guessable name in a shared place: another user may have made it first."""
    import os

    folder = tmp_path / f"ett-spool-{os.getuid()}"
    folder.mkdir()
    try:
        os.chown(folder, 12345, 12345)
    except PermissionError:
        pytest.skip("changing the owner needs root")

    run(
        bench,
        "rec = ett.start('j'); ett.step(1)\nassert rec.dropped == 2\nett.end()",
        TMPDIR=str(tmp_path),
        ETT_SPOOL_DIR="",
    )

    assert [] == list(folder.iterdir())
