"""What a dcgm-exporter on this node says of XIDs and memory, where neither the kernel's log nor NVML can be read."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from ett_collector.agent.post import opener_for
from ett_collector.agent.sources.source import Fault, Missing, Read

if TYPE_CHECKING:
    from ett_collector.agent.sources.source import Finding, Surroundings

TIMEOUT_S = 5.0
MAX_BYTES = 8 * 1024 * 1024
BLANK = 2**62  # DCGM's "no value" is near the largest 64-bit integer
# field -> kind of the fault. The first holds the last XID, the others count or are 1 once it has happened.
FIELDS = {
    "DCGM_FI_DEV_XID_ERRORS": "xid",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "ecc",
}
_SAMPLE = re.compile(r"^(DCGM_FI_DEV_\w+)\{([^}]*)\} ([0-9.eE+-]+)\s*$", re.MULTILINE)
_GPU = re.compile(r'\bgpu="(\d+)"')
_INSTANCE = re.compile(r'\bGPU_I_ID="(\d+)"')

Key = tuple[str, int, str]  # field, GPU, instance of a divided GPU


def parse_metrics(text: str) -> dict[Key, int]:
    """The values of `FIELDS` by GPU."""
    found: dict[Key, int] = {}
    for name, labels, value in _SAMPLE.findall(text):
        gpu = _GPU.search(labels)
        number = float(value)
        if name in FIELDS and gpu is not None and number < BLANK:
            instance = _INSTANCE.search(labels)
            found[name, int(gpu[1]), instance[1] if instance is not None else ""] = int(number)
    return found


def changes(before: dict[Key, int], now: dict[Key, int], at: int) -> list[Finding]:
    """Faults for values that have become others, and larger than 0 (`at` wall ns); a first sight is none."""
    findings: list[Finding] = []
    for key, value in now.items():
        name, gpu, _ = key
        old = before.get(key)
        is_xid = FIELDS[name] == "xid"
        if old is None or value == old or value <= (0 if is_xid else old):
            continue
        findings.append(Fault(at, FIELDS[name], f"DCGM: {name} {value}", value if is_xid else None, gpu))
    return findings


class Dcgm:
    """Asks the exporter every half minute; the stamp of a fault is that of the answer."""

    def __init__(self, around: Surroundings, _cursor: dict[str, Any] | None) -> None:
        self._url = around.dcgm_url
        self._opener = opener_for(around.dcgm_url)
        self._before: dict[Key, int] = {}

    def open(self) -> None:
        """Raises `Missing` where nobody answers."""
        try:
            self._before = self._ask()
        except urllib.error.URLError as error:
            msg = f"{self._url}: {error.reason}"
            raise Missing(msg) from error

    def read(self) -> Read:
        """What has changed since the last answer."""
        now = self._ask()
        findings = changes(self._before, now, time.time_ns())
        self._before = now
        return Read(findings)

    def close(self) -> None:
        """Nothing is held."""

    def _ask(self) -> dict[Key, int]:
        request = urllib.request.Request(self._url)  # noqa: S310 - the operator's own setting
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            return parse_metrics(answer.read(MAX_BYTES).decode(errors="replace"))
