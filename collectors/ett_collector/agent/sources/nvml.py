"""NVML's own events, XIDs and uncorrectable memory errors, where the kernel's log cannot be read."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any

from ett_collector.agent.sources.source import Fault, Missing, Read

if TYPE_CHECKING:
    from ett_collector.agent.sources.source import Finding, Surroundings

LIBRARY = "libnvidia-ml.so.1"
WAIT_MS = 1000
# nvml.h: results, and the bits of event types
SUCCESS, TIMEOUT, GPU_IS_LOST = 0, 10, 15
DOUBLE_BIT_ECC, XID = 1 << 1, 1 << 3


class Event(ctypes.Structure):
    """`nvmlEventData_t`."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def parse_event(kind: int, data: int, gpu: int | None, at: int) -> Fault | None:
    """What an event of NVML says (`kind` is its type, `data` the XID; `at` wall ns)."""
    if kind == XID:
        return Fault(at, "xid", f"NVML: XID {data}", data, gpu)
    if kind == DOUBLE_BIT_ECC:
        return Fault(at, "ecc", "NVML: uncorrectable memory error", None, gpu)
    return None


class Nvml:
    """Waits for events of all GPUs. A call into the library does not hold the interpreter."""

    def __init__(self, _around: Surroundings, _cursor: dict[str, Any] | None) -> None:
        self._library: ctypes.CDLL | None = None
        self._set = ctypes.c_void_p()
        self._gpus: dict[int, int] = {}

    def open(self) -> None:
        """Raises `Missing` without library, driver or GPU, `OSError` where NVML refuses."""
        try:
            self._library = library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            msg = f"{error} (in a container: NVIDIA_DRIVER_CAPABILITIES=utility)"
            raise Missing(msg) from error
        result = library.nvmlInit_v2()
        if result != SUCCESS:
            self._library = None
            msg = f"nvmlInit_v2 returned {result}: no driver, or no permission"
            raise Missing(msg)
        count = ctypes.c_uint()
        _check(library.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount_v2")
        _check(library.nvmlEventSetCreate(ctypes.byref(self._set)), "nvmlEventSetCreate")
        for index in range(count.value):
            self._register(library, index)
        if not self._gpus:
            msg = "no GPU tells its events to NVML"
            raise Missing(msg)

    def read(self) -> Read:
        """Wait for an event at most a second."""
        assert self._library is not None, "opened"
        event = Event()
        result = self._library.nvmlEventSetWait_v2(self._set, ctypes.byref(event), ctypes.c_uint(WAIT_MS))
        if result == TIMEOUT:
            return Read([])
        _check(result, "nvmlEventSetWait_v2")
        fault = parse_event(event.type, event.data, self._gpus.get(event.device or 0), time.time_ns())
        findings: list[Finding] = [] if fault is None else [fault]
        return Read(findings)

    def close(self) -> None:
        """Give back what NVML holds."""
        if self._library is not None:
            if self._set.value:
                self._library.nvmlEventSetFree(self._set)
            self._library.nvmlShutdown()
            self._library = None

    def _register(self, library: ctypes.CDLL, index: int) -> None:
        device = ctypes.c_void_p()
        result = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
        if result == GPU_IS_LOST:
            return
        _check(result, "nvmlDeviceGetHandleByIndex_v2")
        for kinds in (XID | DOUBLE_BIT_ECC, XID):  # not every GPU has ECC
            wanted = ctypes.c_ulonglong(kinds)
            if library.nvmlDeviceRegisterEvents(device, wanted, self._set) == SUCCESS:
                self._gpus[device.value or 0] = index
                return


def _check(result: int, call: str) -> None:
    if result != SUCCESS:
        msg = f"{call} returned {result}"
        raise OSError(msg)
