"""A real process is killed at any moment: all that it had recorded by then is there, and nothing half."""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING

import pytest

from tests.collectors.conftest import PATIENT, until
from tests.collectors.test_recorder import kinds, spools

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench

# The trainer counts what it has recorded in a mapped file of its own, which outlives the kill as well. A count is one
# store: `struct.pack_into` clears the place first, and a trainer killed in between has recorded nothing.
RECORD = """
import mmap, threading
import ett_collector as ett
{setting}
ett.start("j", attempt="a")
said = memoryview(mmap.mmap(os.open({counts!r}, os.O_RDWR), {threads} * 8)).cast("q")
def work(lane):
    for n in range(1 << 40):
        with ett.phase(f"phase-{{lane}}", step=n, attrs={{"lane": lane}} if n % 100 == 0 else None): pass
        ett.step(n * {threads} + lane)
        if n % 50 == 0: ett.checkpoint_committed(n, size=lane)
        said[lane] = n + 1
for lane in range({threads}):
    threading.Thread(target=work, args=(lane,), daemon=True).start()
say("up"); wait()
"""
SETTINGS = {
    "mapped": "",
    "small files": "spool.SEGMENT_BYTES = spool.FIRST_BYTES = 16 * 1024",
    "not mapped": "segment.MAPPED = set()",
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("threads", [1, 4])
def test_sigkill_at_any_moment(bench: Bench, setting: str, threads: int) -> None:
    """Thousands of records in: each one whose call had returned is read, once, and at most one more a thread."""
    dice = random.Random(threads)
    counts = bench.folder / "counts"
    for _ in range(3):
        counts.write_bytes(bytes(8 * threads))
        code = RECORD.format(setting=PATIENT + SETTINGS[setting], counts=str(counts), threads=threads)
        trainer = bench.trainer(code)
        until(lambda: struct.unpack("@q", counts.read_bytes()[:8])[0] > 300)
        time.sleep(dice.random() / 10)
        trainer.kill()
        trainer.wait()

        # each thread may have died in the middle of a note and of a slot for it, which are told apart
        (records,) = spools(bench.spool, torn=2 * threads)
        done = struct.unpack(f"@{threads}q", counts.read_bytes())
        for lane in range(threads):
            marks = [r["n"] // threads for r in records if r["t"] == "step" and r["n"] % threads == lane]
            ends = [r["step"] for r in records if r["t"] == "phase" and r["phase"] == f"phase-{lane}"]
            saves = [r["step"] for r in records if r["t"] == "checkpoint" and r["bytes"] == lane]
            assert marks in (list(range(done[lane])), list(range(done[lane] + 1)))
            assert ends in (list(range(done[lane])), list(range(done[lane] + 1)))
            assert saves in (list(range(0, done[lane], 50)), list(range(0, done[lane] + 1, 50)))
        for path in bench.spool.iterdir():
            path.unlink()


def test_os_exit_keeps_everything(bench: Bench) -> None:
    """No handler runs, no buffer is flushed: none is needed."""
    trainer = bench.trainer(
        f"{PATIENT}import ett_collector as ett\nett.start('j')\nfor n in range(5000): ett.step(n)\nos._exit(3)"
    )

    assert 3 == trainer.wait(timeout=30)
    assert ["step"] * 5000 == kinds(spools(bench.spool)[0])


def test_end_from_a_signal_handler_in_the_middle_of_anything(bench: Bench) -> None:
    """Preempted: the handler says so and leaves at once, whatever it interrupted."""
    dice = random.Random(3)
    for _ in range(5):
        trainer = bench.trainer(f"""{PATIENT}
import signal
import ett_collector as ett
spool.SEGMENT_BYTES = spool.FIRST_BYTES = 16 * 1024
def leave(*_): ett.end("preempted"); os._exit(0)
ett.start("j")
signal.signal(signal.SIGTERM, leave)
with ett.phase("p"): pass
say("up")  # and the phase has its name, whose note the handler may not cut in two
n = 0
while True:
    with ett.phase("p"): ett.step(n)
    n += 1
""")
        assert trainer.stdout is not None
        trainer.stdout.readline()
        time.sleep(0.02 + dice.random() / 20)
        trainer.terminate()
        assert 0 == trainer.wait(timeout=30)

        (records,) = spools(bench.spool)
        steps = [r["n"] for r in records if r["t"] == "step"]
        assert list(range(len(steps))) == steps
        assert [("end", "preempted")] == [(r["t"], r["outcome"]) for r in records[-2:] if r["t"] == "end"]
        for path in bench.spool.iterdir():
            path.unlink()
