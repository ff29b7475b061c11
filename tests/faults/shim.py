"""C that stands between a program and the machine (LD_PRELOAD), built by the tests; faults are files in its folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def build(source: str, folder: Path) -> Path:
    """The shim of a source beside this file, in `folder`. Skips where it cannot be had."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a C compiler on Linux is needed to build a shim")
    made = folder / f"{Path(source).stem}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, HERE / source, "-ldl"], check=True)
    made.chmod(0o755)
    return made


class Fault:
    """`with Fault(shim, "full"): ...`: the fault lasts as long as the block."""

    def __init__(self, shim: Path, name: str) -> None:
        self._file = shim.parent / name

    def __enter__(self) -> None:
        self._file.touch()

    def __exit__(self, *_: object) -> None:
        self._file.unlink()
