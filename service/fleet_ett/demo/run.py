"""`fleet-ett demo`: service, agents and a training that is killed and hangs; then its ledger, from the API."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.demo.backstage import NODES, NotReady, Service, agents, service
from fleet_ett.demo.launcher import VICTIM, Launcher, Plan
from fleet_ett.demo.ledger_text import ledger_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

JOB = "demo/click-model"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when the ledger was printed (and, without `--exit`, the user has stopped it)."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _stop)
    try:
        with _folder(options.folder) as folder:
            _run(folder, leave=options.exit)
    except (NotReady, RuntimeError) as error:
        print(f"fleet-ett demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
    return 0


def _run(folder: Path, *, leave: bool) -> None:
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {text}", flush=True)

    say("the service starts, with a PostgreSQL of its own")
    with service() as books:
        say(f"it listens on {books.url}; agents start on {' and '.join(NODES)}")
        launcher = _train(folder, books, say)
        detail = books.books(JOB, launcher.attempts)
        path = f"/v1/jobs/{urllib.parse.quote(JOB, safe='')}"
        cells = books.get(f"{path}/ledger", by="heading,phase,repeated")["items"]
        timeline = books.get(f"{path}/timeline")["items"]
        told = {"detail": detail, "cells": cells, "timeline": timeline}
        (folder / "books.json").write_text(json.dumps(told))
        say("booked:\n")
        print(ledger_text(detail, cells), flush=True)
        print(f"\nThe service is up: {books.url}{path} (the API: {books.url}/docs)", flush=True)
        if not leave:
            print("Ctrl-C stops it and deletes what it stored.", flush=True)
            signal.pause()


def _train(folder: Path, books: Service, say: Callable[[str], None]) -> Launcher:
    """The training from start to end; when it is over the agents have sent everything."""
    spools = [folder / f"spool-{node}" for node in NODES]

    def before_kill(attempt: str) -> None:
        text = f"{NODES[VICTIM]} is taken away for maintenance"
        say(f"the data centre says so to the service: {text}")
        where = {"job": JOB, "attempt": attempt, "rank": VICTIM}
        books.tell(
            NODES[VICTIM],
            {"type": "fault", "ts": time.time_ns(), "kind": "maintenance", "text": text, **where},
        )

    launcher = Launcher(JOB, folder, spools, Plan(), say, before_kill)
    with agents(books.url, spools):
        launcher.run()
        (folder / "harm.json").write_text(json.dumps(vars(launcher.harm)))
        say("the training is complete; the agents send what is left")
        time.sleep(1.5)  # they give an attempt's last processes a second before they call it ended
    return launcher


@contextlib.contextmanager
def _folder(said: Path | None) -> Iterator[Path]:
    if said is not None:
        said.mkdir(parents=True, exist_ok=True)
        yield said
    else:
        with tempfile.TemporaryDirectory(prefix="fleet-ett-demo-") as made:
            yield Path(made)


def _stop(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fleet-ett demo",
        description="Start the service and a small real training run that is killed and hangs; print its ledger.",
    )
    parser.add_argument(
        "--exit", action="store_true", help="end after printing instead of leaving the service up"
    )
    parser.add_argument(
        "--folder", type=Path, help="keep checkpoints, the training's own logs and the books here"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
