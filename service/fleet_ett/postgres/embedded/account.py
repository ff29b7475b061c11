"""Whose processes the server's are: PostgreSQL refuses to run as root.

As root the server and `initdb` run as an unprivileged user, who owns the server's data and nothing
else. No folder above the data folder is changed: one that this user cannot enter is an error that
says what to do.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet_ett.errors import Invalid

if TYPE_CHECKING:
    from pathlib import Path

CANDIDATES = ("postgres", "nobody")  # `nobody` is on every machine


@dataclass(frozen=True, slots=True)
class Account:
    """A user other than ourselves to run the server as."""

    name: str
    uid: int
    gid: int

    def popen_options(self) -> dict[str, Any]:
        """What makes `subprocess` run a program as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_enter(self, folder: Path) -> bool:
        """Whether this user may reach what lies in the folder; asks the kernel, so that ACLs count."""
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(self.gid)
                os.setuid(self.uid)
                os._exit(0 if os.access(folder, os.X_OK) else 1)
            finally:
                os._exit(2)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def choose_account(pgdata: Path) -> Account | None:
    """The user that the server runs as, or None for ourselves.

    Data that exist decide: their owner stays their owner. Raises `Invalid` where nobody could run it.
    """
    owner = pgdata.stat().st_uid if pgdata.exists() else 0
    if os.geteuid() != 0:
        if pgdata.exists() and owner != os.geteuid():
            msg = f"{pgdata} belongs to user {_name(owner)}: run as that user, or set ETT_DATA_DIR to another folder"
            raise Invalid(msg)
        return None
    for key in (owner,) if owner else CANDIDATES:
        try:
            entry = pwd.getpwuid(key) if isinstance(key, int) else pwd.getpwnam(key)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    who = f"user {owner}, who owns {pgdata}," if owner else "an unprivileged user"
    msg = (
        f"PostgreSQL does not run as root, and {who} is not in the user database: add one "
        "(useradd --system postgres), run as an ordinary user, or set ETT_DATABASE_URL"
    )
    raise Invalid(msg)


def open_to(account: Account, folder: Path) -> None:
    """Let the account reach what lies in our data folder. Raises `Invalid` where a folder above bars the way.

    The data folder itself may be made enterable (not readable) for the account's group: it is ours.
    """
    parents = [*reversed(folder.resolve().parents), folder]
    barred = next((each for each in parents[:-1] if not account.can_enter(each)), None)
    if barred is not None:
        msg = (
            f"PostgreSQL does not run as root, and {account.name!r}, as whom it runs instead, cannot enter {barred}: "
            f"set ETT_DATA_DIR to a folder under one that all may enter, such as /var/lib/fleet-ett, "
            "or run as an ordinary user"
        )
        raise Invalid(msg)
    if not account.can_enter(folder):
        os.chown(folder, -1, account.gid)
        folder.chmod((folder.stat().st_mode & 0o7777) | 0o010)


def give(account: Account, pgdata: Path) -> None:
    """Make the account the owner of the server's data, all of it."""
    for root, _, names in os.walk(pgdata):
        os.chown(root, account.uid, account.gid)
        for name in names:
            os.chown(os.path.join(root, name), account.uid, account.gid, follow_symlinks=False)  # noqa: PTH118


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
