"""`fleet-ett replay FILE`: the one place of this package that touches files and the terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fleet_ett.errors import Invalid
from fleet_ett.replay.offline import Replay, replay_goodput, replay_wire
from fleet_ett.replay.report import document
from fleet_ett.replay.table import table

if TYPE_CHECKING:
    from argparse import Namespace


def main(args: Namespace) -> int:
    """Attribute `args.file` (`-` is stdin), print its books, return 0. `Invalid` when it cannot be read."""
    if args.file == "-":
        found = read(sys.stdin.buffer, args.format, args.as_of)
    else:
        try:
            with Path(args.file).open("rb") as file:
                found = read(file, args.format, args.as_of)
        except OSError as error:
            msg = f"cannot read {args.file}: {error.strerror}"
            raise Invalid(msg) from None
    answer = document(found)
    text = json.dumps(answer, indent=1, allow_nan=False) + "\n" if args.json else table(answer)
    sys.stdout.write(text)
    return 0


def read(file: BinaryIO, layout: str, as_of: int | None) -> Replay:
    """The books of an open file; a goodput timeline may also be spread over many lines."""
    if layout == "wire":
        return replay_wire(file, as_of=as_of)
    text = file.read()
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return replay_goodput(text.splitlines(), as_of=as_of)
    return replay_goodput([text], as_of=as_of)
