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
    """Without any agent the spool stays bounded; what went is counted and told."""
    run(
        bench,
        """
from ett_collector import spool
spool.SEGMENT_BYTES = 10_000
spool.Spool.__init__.__kwdefaults__["segment_bytes"] = 10_000
rec = ett.start("j")
for n in range(5000): ett.step(n)
assert rec.dropped > 0
""",
        ETT_SPOOL_BYTES="50000",
    )
    records = spools(bench.spool)[0]
    steps = [r["n"] for r in records if r["t"] == "step"]

    assert sum(path.stat().st_size for path in bench.spool.iterdir()) <= 60_000
    assert steps == list(range(steps[0], 5000))
    assert [r for r in records if r["t"] == "lost"]


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
