"""The command line, as a user runs it: real processes, a real embedded server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from fleet_ett import __version__
from fleet_ett.ingest import decode_batch, take_in
from fleet_ett.listening import bind
from fleet_ett.postgres.migrate import newest_revision
from fleet_ett.postgres.pool import open_pool
from fleet_ett.postgres.server import EmbeddedServer
from fleet_ett.postgres.store import PostgresStore
from fleet_ett.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SOURCES = [str(ROOT / "service"), str(ROOT / "collectors")]
SCENARIO = ROOT / "tests" / "scenarios" / "b02_basic_rollback" / "events.jsonl"
COMMANDS = ("serve", "migrate", "rebuild", "stats", "db", "token", "rules", "replay", "demo", "version")


def environment(**more: str) -> dict[str, str]:
    """The environment without settings of the machine's own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ETT_")}
    return clean | {"PYTHONPATH": os.pathsep.join(SOURCES)} | more


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`fleet-ett ARGS`, to its end."""
    command = [sys.executable, "-m", "fleet_ett", *args]
    return subprocess.run(
        command, env=environment(**env), capture_output=True, text=True, timeout=120, check=False
    )


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for an embedded server: pytest's own bars the user that it runs as when we are root."""
    path = Path(tempfile.mkdtemp(prefix="ett-cli-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    with folder() as path:
        yield path


@pytest.fixture(scope="module")
def embedded(data_dir: Path) -> Iterator[EmbeddedServer]:
    """The embedded server of that folder, kept up between the commands."""
    with EmbeddedServer.start(data_dir) as server:
        yield server


def test_help_names_every_command_and_setting() -> None:
    """`--help` is the first thing that a newcomer reads."""
    top = run("--help")
    assert 0 == top.returncode
    assert all(command in top.stdout for command in COMMANDS)
    served = run("serve", "--help")
    assert "ETT_DATABASE_URL" in served.stdout
    assert "default 8080" in served.stdout


def test_version() -> None:
    assert f"fleet-ett {__version__}\n" == run("version").stdout


@pytest.mark.parametrize(
    "args",
    [(), ("explode",), ("rebuild", "--as-of", "yesterday"), ("rebuild", "--as-of", str(2**63)), ("replay",)],
)
def test_misuse_says_how_to_use_it(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert 2 == done.returncode
    assert "usage: fleet-ett" in done.stderr


def test_a_misspelt_setting_stops_the_service() -> None:
    """It names the nearest."""
    done = run("serve", ETT_DATABSE_URL="postgresql://localhost/ett")
    assert 2 == done.returncode
    assert "unknown setting ETT_DATABSE_URL: did you mean ETT_DATABASE_URL?" in done.stderr


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_can_reach_is_refused(host: str, data_dir: Path) -> None:
    """Without a token anybody could read and write the books; the message says what to do."""
    done = run("serve", "--host", host, "--port", "0", "--data-dir", str(data_dir))
    assert 1 == done.returncode
    assert "127.0.0.1" in done.stderr
    assert "fleet-ett token create" in done.stderr
    assert "Traceback" not in done.stderr


def test_with_a_token_an_address_that_others_can_reach_is_served() -> None:
    """Nobody gets in without it; on loopback the service had said that it was open."""
    with folder() as path:
        read = ("--name", "n", "--scope", "read", "--all", "--data-dir", str(path))
        assert "open to everybody" in served(path, "127.0.0.1", None)
        token = run("token", "create", *read).stdout.strip()
        assert "open to everybody" not in served(path, "0.0.0.0", token)


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 503), ("0.0.0.0", 401)])
def test_without_its_database_the_service_starts_and_lets_nobody_in(host: str, status: int) -> None:
    """It waits for the database; whether there are tokens it cannot know yet."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_ett", "serve", "--host", host, "--port", "0"],
        env=environment(ETT_DATABASE_URL="postgresql://ett@127.0.0.1:1/ett", ETT_ATTRIBUTION_WORKERS="0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    try:
        port = process.stdout.readline().rpartition(":")[2].strip()
        for path, expected in (("healthz", 200), ("v1/jobs", status), ("readyz", 503)):
            assert expected == status_of(f"http://127.0.0.1:{port}/{path}"), path
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert 0 == process.returncode


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def served(path: Path, host: str, token: str | None) -> str:
    """Serve on a folder, ask for the jobs (with a token: also without it); what it wrote to stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_ett", "serve", "--host", host, "--port", "0", "--data-dir", str(path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        port = process.stdout.readline().rpartition(":")[2].strip()
        url = f"http://127.0.0.1:{port}/v1/jobs"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            assert [] == json.load(answer)["items"]
        if token:
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                urllib.request.urlopen(url, timeout=30)
            refused.value.close()
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert 0 == process.returncode, errors
    return errors


def test_a_taken_port_is_told_before_a_database_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "--port", str(taken.getsockname()[1]), "--data-dir", str(tmp_path / "data"))
    assert 2 == done.returncode
    assert "choose another with ETT_PORT" in done.stderr
    assert not (tmp_path / "data").exists()


def test_without_the_extra_the_commands_say_what_to_install() -> None:
    """A node with an agent has the command and none of the service's packages."""
    script = f"import sys; sys.path[:0] = {SOURCES!r}; from fleet_ett.__main__ import main; sys.exit(main())"
    for command in ("serve", "migrate", "rebuild"):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", script, command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert 2 == done.returncode
        assert "pip install 'fleet-ett[service]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_replay_needs_neither_database_nor_server() -> None:
    """Of third-party packages only numpy is imported."""
    script = (
        "import sys\n"
        "from fleet_ett.__main__ import main\n"
        "code = main(['replay', sys.argv[1], '--json'])\n"
        "heavy = {'fastapi', 'sqlalchemy', 'psycopg', 'alembic', 'uvicorn', 'starlette', 'pandas', 'pydantic'}\n"
        "sys.exit(code or sorted(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(SCENARIO)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "" == done.stderr
    assert 0 == done.returncode
    assert 0.88 == pytest.approx(next(iter(json.loads(done.stdout)["jobs"].values()))["ett"])


def test_replay_of_a_file_that_is_not_there() -> None:
    done = run("replay", "/nonexistent/events.jsonl")
    assert 2 == done.returncode
    assert "cannot read /nonexistent/events.jsonl" in done.stderr


def test_migrate_brings_the_embedded_database_to_the_newest(data_dir: Path, embedded: EmbeddedServer) -> None:
    """And may run again, on the embedded server or by its address."""
    for args in (("--data-dir", str(data_dir)), ("--database-url", embedded.url)):
        done = run("migrate", *args)
        assert f"the database is at migration {newest_revision()}\n" == done.stdout, done.stderr


def test_rebuild_derives_the_books_from_the_raw_events(data_dir: Path, embedded: EmbeddedServer) -> None:
    """Of all jobs or of one, as of any time; a job that nobody named is told."""
    run("migrate", "--data-dir", str(data_dir))
    engine = open_pool(embedded.url, size=2)
    lines = [json.loads(line) for line in SCENARIO.read_text().splitlines()]
    agent = {name: lines[0][name] for name in ("node", "incarnation")}
    batch = decode_batch({"agent": agent, "events": lines}, now=time.time_ns())
    take_in(batch, PostgresStore(engine), now=time.time_ns())
    as_of = str(max(line.get("ts") or line["end"] for line in lines))
    done = run("rebuild", "--job", "job-1", "--as-of", as_of, "--data-dir", str(data_dir))
    assert "rebuilt 1 job\n" == done.stdout, done.stderr
    with engine.connect() as conn:
        wall = conn.execute(text("SELECT sum(wall_ns) FROM ledger")).scalar_one()
    engine.dispose()
    assert 2_500_000_000_000 == wall
    assert "rebuilt 1 job\n" == run("rebuild", "--data-dir", str(data_dir)).stdout
    unknown = run("rebuild", "--job", "nobody", "--data-dir", str(data_dir))
    assert 1 == unknown.returncode
    assert "there is no job 'nobody'" in unknown.stderr


def test_a_database_that_is_not_there_is_told() -> None:
    """No traceback, and no password."""
    done = run("migrate", ETT_DATABASE_URL="postgresql://ett:secret@127.0.0.1:1/ett")
    assert 1 == done.returncode
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_until_it_is_told_to_stop(data_dir: Path, told: signal.Signals) -> None:
    """It says where it listens, is ready at once, and ends with 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_ett", "serve", "--port", "0", "--data-dir", str(data_dir)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        line = process.stdout.readline()
        address = re.fullmatch(r"fleet-ett listens on (http://127\.0\.0\.1:\d+)\n", line)
        assert address, line
        with urllib.request.urlopen(f"{address[1]}/readyz", timeout=30) as answer:
            assert {
                "status": "ready",
                "migration": newest_revision(),
                "head": newest_revision(),
                "away": [],
            } == json.load(answer)
    finally:
        process.send_signal(told)
        _, errors = process.communicate(timeout=60)
    assert 0 == process.returncode, errors
    assert "Traceback" not in errors


def test_serve_takes_its_embedded_server_down_with_it() -> None:
    """The last owner's end is the server's end: nothing is left behind."""
    with folder() as path:
        serve_once(path)
        assert [] == running_in(path)


def serve_once(path: Path) -> None:
    """Start the service on a folder, see it listen, stop it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_ett", "serve", "--port", "0", "--data-dir", str(path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline().startswith("fleet-ett listens on")
    process.terminate()
    process.communicate(timeout=60)
    assert 0 == process.returncode


def running_in(folder: Path) -> list[str]:
    """Commands of processes that still work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in command:
                found.append(command)
    return found


def test_an_answer_leaves_at_once() -> None:
    """asyncio sets TCP_NODELAY only on sockets that name their protocol; else kept connections wait 40 ms a request."""
    with bind(Settings(port=0)) as listening:
        assert socket.IPPROTO_TCP == listening.proto
