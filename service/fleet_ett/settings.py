"""What an operator may set, read once from `ETT_*` variables at the edge and passed down.

Every option has a default that works on a laptop. A misspelt name is an error that names the nearest
option: a setting that silently does nothing is worse than a service that does not start.
"""

from __future__ import annotations

import difflib
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_ett.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND_NS = 1_000_000_000

# name -> what it is for; the table of README.md and of `fleet-ett serve --help`.
OPTIONS: dict[str, str] = {
    "ETT_DATABASE_URL": "PostgreSQL 15 or newer, postgresql://user:password@host/database (default: embedded)",
    "ETT_SHARD_URLS": "servers that own the jobs, comma-separated; ETT_DATABASE_URL is then their home (default: none)",
    "ETT_DATABASE_URL_FILE": "file that holds ETT_DATABASE_URL, for passwords that no environment should show",
    "ETT_SHARD_URLS_FILE": "file that holds ETT_SHARD_URLS",
    "ETT_DATA_DIR": "where the embedded server keeps its data (default: the user's state directory)",
    "ETT_PG_BIN": "bin folder of an installed PostgreSQL to run as the embedded server (default: the wheel's)",
    "ETT_HOST": "address to listen on; others can reach it only with tokens (default 127.0.0.1)",
    "ETT_PORT": "port to listen on, 0 for any free one (default 8080)",
    "ETT_TLS_CERT": "PEM file with the certificate (and its chain) to speak TLS with; needs ETT_TLS_KEY",
    "ETT_TLS_KEY": "PEM file with its key, readable by the service's user alone",
    "ETT_LATENESS_S": "seconds after which a booking is settled although an agent may still report (default 900)",
    "ETT_HANG_S": "seconds of silence with heartbeats after which a live attempt is a stall (default 600)",
    "ETT_RETENTION_DAYS": "days that raw events are kept, 0 for ever; ledgers stay (default 14)",
    "ETT_SEGMENT_RETENTION_DAYS": "days that segments are kept, 0 for ever; ledgers stay by the hour (default 90)",
    "ETT_WORKERS": "processes that answer HTTP; attribution has a process of its own (default 1)",
    "ETT_ATTRIBUTION_WORKERS": "threads that book jobs, 0 for a service that only answers (default 1)",
    "ETT_POOL_SIZE": "database connections of each process (default 10)",
    "ETT_LOG_LEVEL": "debug, info, warning or error (default info)",
}
# One machine may run the service, an agent and a trainer: names that belong to the collectors are theirs to check.
COLLECTOR_PREFIXES = (
    "ETT_AGENT",
    "ETT_ALLOCATED",
    "ETT_ATTEMPT",
    "ETT_CLUSTER",
    "ETT_DISABLE",
    "ETT_FRAMEWORK",
    "ETT_GPUS",
    "ETT_JOB",
    "ETT_MODEL",
    "ETT_NODE",
    "ETT_RANK",
    "ETT_RECORDER",
    "ETT_SERVER",
    "ETT_SERVICE",
    "ETT_SPOOL",
    "ETT_TEAM",
    "ETT_URL",
    "ETT_WORLD",
)
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Settings:
    """The service's settings. Durations in ns; `None` for a database or a folder: the embedded one."""

    database_url: str | None = None
    shard_urls: tuple[str, ...] = ()
    data_dir: Path | None = None
    pg_bin: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    tls_cert: Path | None = None
    tls_key: Path | None = None
    lateness_ns: int = 900 * SECOND_NS
    hang_ns: int = 600 * SECOND_NS
    retention_days: int = 14
    segment_days: int = 90
    workers: int = 1
    attribution_workers: int = 1
    pool_size: int = 10
    log_level: str = "info"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; an empty value means the default. Raises `Invalid` naming the variable."""
        for name in sorted(environ):
            if name.startswith("ETT_") and name not in OPTIONS and not name.startswith(COLLECTOR_PREFIXES):
                raise Invalid(_unknown(name))
        tls_cert, tls_key = _path(environ, "ETT_TLS_CERT"), _path(environ, "ETT_TLS_KEY")
        if (tls_cert is None) != (tls_key is None):
            msg = "ETT_TLS_CERT and ETT_TLS_KEY go together"
            raise Invalid(msg)
        return cls(
            database_url=_database_url("ETT_DATABASE_URL", _told_or_kept(environ, "ETT_DATABASE_URL")),
            shard_urls=database_urls("ETT_SHARD_URLS", _told_or_kept(environ, "ETT_SHARD_URLS")),
            data_dir=_path(environ, "ETT_DATA_DIR"),
            pg_bin=_path(environ, "ETT_PG_BIN"),
            host=environ.get("ETT_HOST") or "127.0.0.1",
            port=_integer(environ, "ETT_PORT", 8080, high=65_535),
            tls_cert=tls_cert,
            tls_key=tls_key,
            lateness_ns=_integer(environ, "ETT_LATENESS_S", 900, high=31 * 86_400) * SECOND_NS,
            hang_ns=_integer(environ, "ETT_HANG_S", 600, low=1, high=31 * 86_400) * SECOND_NS,
            retention_days=_integer(environ, "ETT_RETENTION_DAYS", 14, high=36_500),
            segment_days=_integer(environ, "ETT_SEGMENT_RETENTION_DAYS", 90, high=36_500),
            workers=_integer(environ, "ETT_WORKERS", 1, low=1, high=64),
            attribution_workers=_integer(environ, "ETT_ATTRIBUTION_WORKERS", 1, high=64),
            pool_size=_integer(environ, "ETT_POOL_SIZE", 10, low=2, high=1000),
            log_level=_log_level(environ),
        )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address that the service listens on."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


def database_urls(name: str, told: str) -> tuple[str, ...]:
    """Database URLs from a comma-separated list. Raises `Invalid` for one of another database than PostgreSQL."""
    return tuple(url for one in told.split(",") if (url := _database_url(name, one)) is not None)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(OPTIONS)}"
    return f"unknown setting {name}: {hint}"


def _integer(environ: Mapping[str, str], name: str, default: int, *, low: int = 0, high: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or not low <= int(text[:20]) <= high:
        msg = f"{name} must be a whole number from {low} to {high}, not {text!r}"
        raise Invalid(msg)
    return int(text)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    told = environ.get(name, "").strip()
    return Path(told).expanduser() if told else None


def _told_or_kept(environ: Mapping[str, str], name: str) -> str:
    """A value, or what the file holds that `<name>_FILE` names. Raises `Invalid` for both at once."""
    told, path = environ.get(name, ""), _path(environ, f"{name}_FILE")
    if path is None:
        return told
    if told:
        msg = f"{name} and {name}_FILE are both set"
        raise Invalid(msg)
    try:
        kept = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{name}_FILE: {path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        raise Invalid(msg) from None
    if not kept:  # the embedded server instead would be a surprise
        msg = f"{name}_FILE: {path} is empty"
        raise Invalid(msg)
    return kept


def _database_url(name: str, told: str) -> str | None:
    url = told.strip()
    if not url:
        return None
    scheme = url.partition("://")[0]
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        # the value is not shown: it may hold a password
        msg = f"{name} must start with postgresql://; no other database is supported"
        raise Invalid(msg)
    return url


def _log_level(environ: Mapping[str, str]) -> str:
    level = (environ.get("ETT_LOG_LEVEL") or "info").lower()
    if level not in LOG_LEVELS:
        msg = f"ETT_LOG_LEVEL must be one of {', '.join(LOG_LEVELS)}, not {level!r}"
        raise Invalid(msg)
    return level
