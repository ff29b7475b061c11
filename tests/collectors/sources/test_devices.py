"""NVML, DCGM and the fabric manager: what stands in where the kernel's log cannot be read."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.sources import nvml
from ett_collector.agent.sources.dcgm import Dcgm, parse_metrics
from ett_collector.agent.sources.fabric_manager import FabricManager, parse_line
from ett_collector.agent.sources.source import Fault, Missing, Surroundings
from tests.collectors.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.collectors.conftest import Bench

LOG = Path(__file__).parents[2] / "data" / "host_logs" / "gpud_fabric_manager_fabricmanager.log"
# what NVML's functions do on a machine with two GPUs, of which the second one without ECC falls off the bus
LIBRARY = r"""
#include <unistd.h>
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } event_t;
static int told;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlEventSetCreate(void **set) { *set = (void *)0x7f00000000f0; return 0; }
int nvmlEventSetFree(void *set) { return set != (void *)0x7f00000000f0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(0x7f0000000010 + 16L * i); return 0; }
int nvmlDeviceRegisterEvents(void *d, unsigned long long kinds, void *set) {
    return d == (void *)0x7f0000000020 && (kinds & 2) ? 3 : set != (void *)0x7f00000000f0;
}
int nvmlEventSetWait_v2(void *set, event_t *e, unsigned ms) {
    usleep(50000);
    if (told++) return 10;
    *e = (event_t){(void *)0x7f0000000020, 8, 79, 0xffffffff, 0xffffffff};
    return 0;
}
"""
PAGE = """# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="GPU-1f02",device="nvidia0",modelName="NVIDIA A800",GPU_I_ID="3",err_msg="x"}} 0
DCGM_FI_DEV_XID_ERRORS{{gpu="1",UUID="GPU-9e5b",device="nvidia1",modelName="NVIDIA A800",Hostname="h"}} {xid}
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="0",UUID="GPU-1f02"}} {errors}
DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="0", UUID="GPU-1f02",container="",namespace="",pod=""}} 0
DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="1", UUID="GPU-9e5b",container="",namespace="",pod=""}} 9223372036854775794
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-1f02"}} 41
"""


class Exporter:
    """A dcgm-exporter as far as HTTP goes; `page` is what it says."""

    def __init__(self) -> None:
        self.page = PAGE.format(xid=0, errors=0)
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(exporter.page.encode())

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    found = Exporter()
    yield found
    found.server.shutdown()
    found.server.server_close()
    found.thread.join()


def test_nvml_tells_an_xid(bench: Bench) -> None:
    """Through the library's own functions, laid out as nvml.h says: code and number of the GPU."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (bench.folder / "nvml.c").write_text(LIBRARY)
    library = bench.folder / nvml.LIBRARY
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, bench.folder / "nvml.c"], check=True)
    # with the kernel's log it would stand by: an XID must not be told twice
    agent = bench.agent("--sources", "nvml", LD_LIBRARY_PATH=str(bench.folder))
    until(lambda: bench.receiver.of("fault"))
    bench.stop(agent)

    (fault,) = bench.receiver.of("fault")
    assert ("xid", 79, 1) == tuple(fault.body[name] for name in ("kind", "code", "gpu"))


def test_nvml_events() -> None:
    assert None is nvml.parse_event(1 << 2, 0, 0, 1)
    assert Fault(1, "ecc", "NVML: uncorrectable memory error", None, 0) == nvml.parse_event(1 << 1, 0, 0, 1)


def test_no_nvml() -> None:
    """A machine without the driver is nothing wrong."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has NVIDIA's driver")
    with pytest.raises(Missing):
        nvml.Nvml(Surroundings(), None).open()


def test_dcgm_tells_what_changed(exporter: Exporter) -> None:
    """What was there before is old; a new XID and a count that grew are faults, a count that fell is a reset."""
    exporter.page = PAGE.format(xid=13, errors=2)
    source = Dcgm(Surroundings(dcgm_url=exporter.url), None)
    source.open()
    assert [] == source.read().findings
    exporter.page = PAGE.format(xid=79, errors=3)
    found = [one for one in source.read().findings if isinstance(one, Fault)]
    assert {("xid", 79, 1), ("ecc", None, 0)} == {(one.kind, one.code, one.gpu) for one in found}
    exporter.page = PAGE.format(xid=0, errors=0)
    assert [] == source.read().findings


def test_dcgm_page() -> None:
    """Blank values are left out; instances of a divided GPU are apart."""
    assert {
        ("DCGM_FI_DEV_XID_ERRORS", 0, "3"): 0,
        ("DCGM_FI_DEV_XID_ERRORS", 1, ""): 94,
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0, ""): 2,
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, ""): 0,
    } == parse_metrics(PAGE.format(xid=94, errors=2))


def test_no_dcgm() -> None:
    with pytest.raises(Missing, match="refused"):
        Dcgm(Surroundings(dcgm_url="http://127.0.0.1:9/metrics"), None).open()


def test_recorded_fabric_manager() -> None:
    """One error of an NVSwitch among a hundred lines, stamped in the node's own zone."""
    found = [one for line in LOG.read_text().splitlines() if (one := parse_line(line)) is not None]
    at = int(time.mktime((2025, 2, 27, 15, 10, 2, 0, 0, -1))) * 10**9
    assert [(at, "other", 12028)] == [(one.at, one.kind, one.code) for one in found]
    assert found[0].text.startswith("detected NVSwitch non-fatal error 12028 on fid 0")


def test_fabric_manager_is_read_on(tmp_path: Path) -> None:
    """From the end at the first look, from where it was left after that, from the beginning once it is rotated."""
    log = tmp_path / "fabricmanager.log"
    text = LOG.read_text().rstrip("\n")
    before, _, last = text.rpartition("\n\n")
    log.write_text(text + "\n")
    first = FabricManager(Surroundings(fabric_log=str(log)), None)
    first.open()
    assert [] == first.read().findings
    with log.open("a") as file:
        file.write(last + "\n" + last[:30])
    read = first.read()
    assert 1 == len(read.findings)
    with log.open("a") as file:
        file.write(last[30:] + "\n")
    second = FabricManager(Surroundings(fabric_log=str(log)), read.cursor)
    second.open()
    assert 1 == len(second.read().findings)
    log.replace(tmp_path / "fabricmanager.log.1")
    log.write_text(before + "\n\n" + last + "\n")
    assert 1 == len(second.read().findings)
    with pytest.raises(Missing):
        FabricManager(Surroundings(fabric_log=str(tmp_path / "none")), None).open()
