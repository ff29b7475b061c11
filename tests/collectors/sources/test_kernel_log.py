"""The kernel's log: what recorded lines say, and reading it as it grows."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.sources.kernel_log import KernelLog, Victim, parse_minor, parse_record, parse_text
from ett_collector.agent.sources.source import Fault, Missing, Surroundings
from tests.collectors.conftest import until

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench

LOGS = Path(__file__).parents[2] / "data" / "host_logs"
PREFIX = re.compile(
    r"^(?:kern  :\w+\s*: \S+|\[\w{3} \w{3} \d\d [\d:]+ \d{4}\]) "
)  # what dmesg puts before the text
POD = "pod" + "0" * 4


def said(name: str) -> list[Fault | Victim]:
    """What the lines of a recorded log say."""
    lines = [PREFIX.sub("", line) for line in (LOGS / name).read_text().splitlines()]
    return [found for line in lines if (found := parse_text(line, 1)) is not None]


def test_recorded_records() -> None:
    """Records of a real /dev/kmsg are read, and what is no fault is none."""
    for name in ("gpud_kmsg_kmsg.1.log", "gpud_kmsg_kmsg.2.peermem.log"):
        lines = (LOGS / name).read_text().splitlines()
        records = [parse_record(line) for line in lines]
        assert None not in records
        assert [] == [one for one in records if one is not None and parse_text(one.text, 1)]
    last = parse_record(
        "6,4010,57631398464,-;IPv6: ADDRCONF(NETDEV_CHANGE): calic24dd7712a6: link becomes ready"
    )
    assert (4010, 57631398464) == (last and last[:2])


def test_recorded_xids() -> None:
    """Codes, and processes where the driver knew them."""
    found = said("gpud_xid_dmesg-with-xid-119.log")
    assert [(119, 2024380)] * 3 + [(119, 1263500), (119, 1240590)] == [(f.code, f.pid) for f in faults(found)]
    memory = [one for one in faults(said("gpud_memory_dmesg.decode.iso.log")) if one.kind == "xid"]
    assert {13: 16, 43: 1} == Counter(one.code for one in memory)
    assert {None, 2924364} == {one.pid for one in memory}


def test_recorded_oom_kills() -> None:
    """Who was killed; who is about to be, with the cgroup; and not what older kernels say beforehand."""
    found = said("gpud_memory_dmesg.decode.iso.log")
    kills = [one for one in faults(found) if one.kind == "oom"]
    assert [(123, True, False)] * 2 == [(one.pid, one.killed, one.local) for one in kills]
    victims = [one for one in found if isinstance(one, Victim)]
    assert [True] == [one.memcg and POD not in one.cgroup and "kubepods" in one.cgroup for one in victims]


def test_recorded_segfaults_in_nccl() -> None:
    found = faults(said("gpud_nccl_dmesg.decode.iso.log"))
    assert [("other", 2536443, True)] * 2 == [(one.kind, one.pid, one.local) for one in found]
    assert "libnccl.so.2" in found[0].text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            ("xid", 79),
        ),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: SM (0x1). RST: No", ("xid", 94)),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout",
            ("other", 24007),
        ),
        (
            "pcieport 0000:89:02.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            ("other",),
        ),
        ("pcieport 0000:00:1d.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", None),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", ("other",)),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", None),
        ("Killed process 456 (python) total-vm:4096kB, anon-rss:1024kB", ("oom",)),
        ("Out of memory: Kill process 456 (python) score 50 or sacrifice child", None),
        ("python3[77]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6[7f+1d3000]", None),
        ("a user's line with NVRM: Xid (PCI:0000:3b:00): 79, in its middle", None),
    ],
)
def test_lines(line: str, expected: tuple[object, ...] | None) -> None:
    """In the words of the drivers and of the kernel."""
    found = parse_text(line, 1)
    assert expected == (
        None if found is None else tuple(v for v in (found.kind, found.code) if v is not None)
    )


def test_real_device() -> None:
    """The machine's own log is read to its end, once; records that were there before do not come again."""
    source = KernelLog(Surroundings(), None)
    try:
        source.open()
    except Missing as why:
        pytest.skip(str(why))
    first = source.read()
    again = source.read()
    source.close()
    assert first.cursor is not None
    assert first.cursor["seq"] >= 0
    later = KernelLog(Surroundings(), again.cursor or first.cursor)  # something may have come between the two
    later.open()
    assert [] == [one for one in later.read().findings if one in first.findings or one in again.findings]
    later.close()


def test_one_fault_of_many_lines(tmp_path: Path) -> None:
    """Lines of one GPU with one code within seconds are one fault; the number of the GPU is that of the driver."""
    log, procfs = pipe(tmp_path), tmp_path / "proc"
    gpu = procfs / "driver" / "nvidia" / "gpus" / "0000:38:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t NVIDIA H100\nDevice Minor: \t 3\n")
    source = KernelLog(Surroundings(kmsg=str(log), procfs=str(procfs)), None)
    source.open()
    writer = os.open(log, os.O_WRONLY)
    texts = [
        PREFIX.sub("", line) for line in (LOGS / "gpud_memory_dmesg.decode.iso.log").read_text().splitlines()
    ]
    now_us = time.monotonic_ns() // 1000
    os.write(writer, b"".join(f"4,{seq},{now_us},-;{text}\n".encode() for seq, text in enumerate(texts[:17])))
    read = source.read()
    assert [("xid", 13, 3), ("xid", 43, 3)] == [(f.kind, f.code, f.gpu) for f in faults(read.findings)]
    assert 16 == (read.cursor or {})["seq"]
    os.write(writer, f"4,16,{now_us},-;{texts[16]}\n4,17,{now_us},c;NVRM: Xid (PCI:0000:38:00): 7".encode())
    assert [] == source.read().findings
    os.write(writer, b"9, pid=1, half a record is none\n SUBSYSTEM=pci\n")
    assert [79] == [one.code for one in faults(source.read().findings)]
    source.close()
    os.close(writer)


def test_old_lines_are_left_out_at_the_first_look(tmp_path: Path) -> None:
    """An agent that is new on a node does not report the faults of last week."""
    log = pipe(tmp_path)
    source = KernelLog(Surroundings(kmsg=str(log)), None)
    source.open()
    writer = os.open(log, os.O_WRONLY)
    os.write(writer, b"4,1,1,-;NVRM: Xid (PCI:0000:38:00): 79, pid=1, long ago\n")
    old = time.monotonic_ns() // 1000 > 900_000_000
    assert (0 if old else 1) == len(source.read().findings)
    source.close()
    os.close(writer)


def test_gpu_information() -> None:
    assert 4 == parse_minor("IRQ:   123\nDevice Minor: \t 4\n")
    assert None is parse_minor("")


def test_xid_of_a_trainer_and_of_another(bench: Bench) -> None:
    """One that names a trainer's process is its attempt's, any other the node's; after a restart none comes twice."""
    log = pipe(bench.folder)
    keeper = os.open(log, os.O_RDWR)
    agent = bench.agent("--kmsg", str(log), "--sources", "kernel_log")
    trainer = bench.trainer(
        "import ett_collector as ett\nett.start('j', attempt='a', rank=3)\nsay('up'); wait()"
    )
    until(lambda: [e for e in bench.receiver.of("heartbeat") if e.body["jobs"]])
    now_us = time.monotonic_ns() // 1000
    lines = [
        f"4,10,{now_us},-;NVRM: Xid (PCI:0000:38:00): 31, pid={trainer.pid}, name=python, Ch 00000008\n",
        f"4,11,{now_us},-;NVRM: Xid (PCI:0000:9b:00): 119, pid=1, name=nvidia-smi, Timeout after 6s\n",
    ]
    os.write(keeper, "".join(lines).encode())
    until(lambda: len(bench.receiver.of("fault")) == 2)
    bench.stop(agent)
    again = bench.agent("--kmsg", str(log), "--sources", "kernel_log")
    os.write(keeper, "".join([*lines, lines[1].replace(",11,", ",12,").replace("119", "79")]).encode())
    until(lambda: len(bench.receiver.of("fault")) == 3)
    bench.stop(again)
    os.close(keeper)

    found = {e.body["code"]: (e.job, e.attempt, e.rank) for e in bench.receiver.of("fault")}
    assert {31: ("j", "a", 3), 119: (None, None, None), 79: (None, None, None)} == found


def faults(found: list[Fault | Victim] | list[object]) -> list[Fault]:
    return [one for one in found if isinstance(one, Fault)]


def pipe(folder: Path) -> Path:
    """A pipe in place of the device: lines are read from it as they come."""
    path = folder / "kmsg"
    os.mkfifo(path)
    return path
