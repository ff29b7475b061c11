"""What alerts cost Prometheus, and how soon they come: `python -m tests.bench.alerting [--quick] [--only rules|time]`.

First the shipped rules on 30 days of history of fleets of several sizes: how long each group takes of its interval
(`evaluation.py`). Then failures, end to end: a real service, Prometheus and Alertmanager, and how long each stage took
from the failure to the message (`alarm.py`), with short intervals and with those that are shipped.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from fleet_ett.postgres.server import EmbeddedServer
from tests.bench import alarm_stages, alarms, evaluation
from tests.bench.attribution import database

FLEETS = {3: (1,), 30: (1, 2)}  # clusters: replicas of the service
QUICK_FLEETS = {3: (1,)}


def alarm(server: EmbeddedServer, name: str, folder: Path) -> bool:
    """Measure failures with these settings and print the table; whether the goal was kept."""
    setting, failures = getattr(alarms, name)()
    with database(server, name) as engine:
        alarm_stages.measured(engine.url.render_as_string(hide_password=False), folder, setting, failures)
    return alarms.report(setting, failures)


def main() -> None:
    """Measure on a server of its own, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest fleet, short intervals")
    parser.add_argument("--only", choices=("rules", "time"))
    args = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ett-bench-"))
    parent.chmod(0o711)
    is_well = True
    try:
        with EmbeddedServer.start(parent / "postgres") as server:
            if args.only != "time":
                found = [
                    one
                    for clusters, replicas in (QUICK_FLEETS if args.quick else FLEETS).items()
                    for one in evaluation.evaluated(
                        evaluation.page_of_a_fleet(server, clusters),
                        clusters,
                        replicas,
                        parent / str(clusters),
                    )
                ]
                is_well = evaluation.report(found)
            if args.only != "rules":
                for name in ("short",) if args.quick else ("short", "shipped"):
                    is_well = alarm(server, name, parent / name) and is_well
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
