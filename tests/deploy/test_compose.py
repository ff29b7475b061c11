"""The compose file: what it says fits together, and its commands do what README says, with the real programs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
import yaml

from fleet_ett.demo.backstage import LISTENS, stop
from fleet_ett.listening import GRACE_S
from fleet_ett.rules.durations import seconds
from fleet_ett.serve import MARGIN_S
from fleet_ett.settings import OPTIONS, Settings
from tests.deploy.composed import COMPOSE, SERVICES, Composed
from tests.deploy.dockerfile import DEPLOY, ROOT, Folder
from tests.deploy.test_images import PINNED
from tests.faults.server import Server, folder, wait_until
from tests.ports import free_port
from tests.prometheus.running import answered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OURS = [name for name, one in SERVICES.items() if "build" in one]
SECRETS = COMPOSE["secrets"]
PORTS = {"service": 8080, "prometheus": 9090, "alertmanager": 9093, "postgres": 5432}


class Stack:
    """PostgreSQL with the compose file's options and password, and the rest to be started."""

    def __init__(self, root: Path, image: Folder, stack: ExitStack) -> None:
        self.root = root
        self._stack = stack
        (root / "secrets").mkdir()
        subprocess.run([DEPLOY / "docker" / "secrets.sh", root / "secrets"], capture_output=True, check=True)
        self.ports = {name: free_port() for name in PORTS}
        names = {f"{name}:{port}": f"127.0.0.1:{self.ports[name]}" for name, port in PORTS.items()}
        names |= {f"127.0.0.1:{port}": f"127.0.0.1:{self.ports[name]}" for name, port in PORTS.items()}
        quickly = {"scrape_interval: 15s": "scrape_interval: 1s", "scrape_timeout: 10s": "scrape_timeout: 1s"}
        names["--port=5432"] = f"--port={self.ports['postgres']}"
        quickly |= {"group_wait: 30s": "group_wait: 0s"}
        url = root / "secrets" / "database_url"
        url.write_text(url.read_text().replace("postgres:5432", names["postgres:5432"]))
        self.composed = Composed(root, names | quickly, image)
        self._start_postgres()

    def _start_postgres(self) -> None:
        program, *options = SERVICES["postgres"]["command"]
        assert "postgres" == program
        told = [word for word in options if word != "-c"]
        at = (f"port={self.ports['postgres']}", "listen_addresses=127.0.0.1")
        parent = self._stack.enter_context(folder())
        server = Server(parent / "data", *told, *at)
        server.cluster.create()
        hba = server.folder.pgdata / "pg_hba.conf"
        hba.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        server.start(wait=False)
        self._stack.callback(server.stop)
        self.pg_isready = str(server.cluster.bin_dir / "pg_isready")
        password = (self.root / "secrets" / "postgres_password").read_text().strip()
        where = {"host": str(server.folder.pgdata), "port": self.ports["postgres"], "user": "ett"}
        wait_until(lambda: self._answers(where))
        with psycopg.connect(**where, dbname="postgres", autocommit=True) as conn:
            conn.execute("CREATE DATABASE ett")
            conn.execute(f"ALTER ROLE ett PASSWORD '{password}'".encode())

    @staticmethod
    def _answers(where: dict[str, Any]) -> bool:
        try:
            psycopg.connect(**where, dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self, service: str, *more: str, **environ: str) -> subprocess.Popen[str]:
        """A service with its own command and variables; `more` are options that only move it."""
        process = subprocess.Popen(
            [*self.composed.command(service), *more],
            env=self.composed.environ(service) | environ, cwd=self.root, text=True,
            stdout=subprocess.PIPE, stderr=self._stack.enter_context((self.root / f"{service}.log").open("w")),
        )  # fmt: skip
        self._stack.callback(lambda: (stop(process), process.stdout and process.stdout.close()))
        return process

    def wait_for(self, service: str) -> None:
        """Until its health check says so."""
        until = time.monotonic() + 60
        while not self.composed.is_healthy(service):
            assert time.monotonic() < until, (self.root / f"{service}.log").read_text()
            time.sleep(0.2)


@pytest.fixture(scope="module")
def stack(service_image: Folder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with ExitStack() as stack:
        yield Stack(tmp_path_factory.mktemp("compose"), service_image, stack)


def test_what_is_mounted_is_there() -> None:
    for name, one in SERVICES.items():
        for volume in one.get("volumes", []):
            source, inside, *mode = volume.split(":")
            if source.startswith("./"):
                assert (DEPLOY / source).is_dir(), f"{name}: {source}"
                assert ["ro"] == mode
            else:
                assert source in COMPOSE["volumes"]
            assert inside.startswith("/")
        build = one.get("build")
        if build:
            assert ROOT == (DEPLOY / build["context"]).resolve()
            assert (ROOT / build["dockerfile"]).exists()
        else:
            assert PINNED.fullmatch(one["image"])


@pytest.mark.parametrize("name", OURS)
def test_every_setting_is_the_services(name: str) -> None:
    environ = SERVICES[name]["environment"]
    assert set(environ) <= set(OPTIONS)
    assert all(isinstance(value, str) for value in environ.values())
    assert Settings.from_env({k: v for k, v in environ.items() if not k.endswith("_FILE")}).workers == 1


def test_nothing_is_open_to_others_and_no_password_stands_here() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    for name, one in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", [])), name
        assert one["cap_drop"] == ["ALL"]
        assert one["read_only"]
        assert {"cpus", "memory"} == set(one["deploy"]["resources"]["limits"]), name
        for key in one.get("environment", {}):
            assert not re.search(r"PASSWORD|TOKEN|SECRET|DATABASE_URL", key) or key.endswith("_FILE"), key
        assert set(one.get("secrets", [])) <= set(SECRETS)
    assert not re.search(r"postgresql://|ett_[a-z0-9]+_", text)


def test_secrets_are_made_once_and_kept_from_others(tmp_path: Path) -> None:
    """Nobody else enters the folder; a file of it can be read by whatever user a program runs as."""
    script = DEPLOY / "docker" / "secrets.sh"
    made = tmp_path / "secrets"
    subprocess.run([script, made], capture_output=True, check=True)
    assert set(SECRETS) == {path.name for path in made.iterdir()}
    assert all(f"./secrets/{name}" == one["file"] for name, one in SECRETS.items())
    assert (0o700, {0o644}) == (
        made.stat().st_mode & 0o777,
        {path.stat().st_mode & 0o777 for path in made.iterdir()},
    )
    before = {path.name: path.read_text() for path in made.iterdir()}
    assert before["postgres_password"].strip() in before["database_url"]
    assert before["postgres_password"] != before["grafana_password"]
    assert 48 == len(before["postgres_password"].strip())
    subprocess.run([script, made], capture_output=True, check=True)
    assert before == {path.name: path.read_text() for path in made.iterdir()}
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_nobody_is_killed_before_it_has_ended() -> None:
    patience = GRACE_S + MARGIN_S
    assert seconds(SERVICES["service"]["stop_grace_period"], "") > patience
    assert seconds(SERVICES["postgres"]["stop_grace_period"], "") >= 60


def test_prometheus_keeps_what_the_budgets_look_back_on() -> None:
    (kept,) = [word for word in SERVICES["prometheus"]["command"] if "retention.time" in word]
    objectives = yaml.safe_load((DEPLOY / "prometheus" / "objectives.yaml").read_text())
    assert seconds(kept.partition("=")[2], "") > seconds(objectives["period"], "")


def test_the_example_and_the_stack_scrape_by_the_same_names() -> None:
    """The rules go by the job's name."""
    jobs = [
        {
            one["job_name"]
            for one in yaml.safe_load((DEPLOY / "prometheus" / name).read_text())["scrape_configs"]
        }
        for name in ("prometheus.yml", "compose.yml")
    ]
    assert "fleet-ett" in jobs[1] <= jobs[0]


def test_grafana_is_told_all_that_its_provisioning_asks_for() -> None:
    """And dashboards lie where it looks for them."""
    grafana = SERVICES["grafana"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    text = "\n".join(
        yaml.safe_dump(yaml.safe_load(path.read_text())) for path in provisioning.rglob("*.yaml")
    )  # without comments
    told = {name.removesuffix("__FILE") for name in grafana["environment"]}  # as the image does
    assert set(re.findall(r"\$\{?(\w+)", text)) == {name for name in told if name.startswith("GF_ETT_")}
    (looked_at,) = re.findall(r"path: (/\S+)", text)
    (source,) = [volume.split(":")[0] for volume in grafana["volumes"] if volume.split(":")[1] == looked_at]
    assert list((DEPLOY / source).glob("*.json"))


def test_the_stack_comes_up_as_the_readme_says(stack: Stack) -> None:
    """Health checks, migrations, tokens, in the order of `depends_on` and README; a scrape and an alert go through."""
    composed = stack.composed
    wait_until(lambda: composed.is_healthy("postgres", path=stack.pg_isready))
    done = composed.run("migrate")
    assert 0 == done.returncode, done.stderr
    assert "the database is at migration" in done.stdout
    # not on the port that is written there: this machine may have something on it
    refused = composed.run("service", "serve", "--port", str(stack.ports["service"]))
    assert 1 == refused.returncode
    assert "fleet-ett token create" in refused.stderr
    for words, path in commands_of_the_readme():
        done = composed.run("service", *words)
        assert 0 == done.returncode, done.stderr
        (stack.root / path).write_text(done.stdout)

    password = (stack.root / "secrets" / "reader_password").read_text().strip()
    told = SERVICES["grafana"]["environment"]
    where = {
        "host": "127.0.0.1",
        "port": stack.ports["postgres"],
        "dbname": told["GF_ETT_POSTGRES_DATABASE"],
    }
    with psycopg.connect(**where, user=told["GF_ETT_POSTGRES_USER"], password=password) as reader:
        assert [] == reader.execute("SELECT * FROM report.jobs").fetchall()

    service = stack.start("service", ETT_PORT=str(stack.ports["service"]))
    assert service.stdout is not None
    assert f"{LISTENS}http://0.0.0.0:{stack.ports['service']}" == service.stdout.readline().strip()
    stack.wait_for("service")
    with receiver() as (hook, messages):
        (stack.root / "secrets" / "pages_url").write_text(hook)
        for name in ("alertmanager", "prometheus"):
            stack.start(name, f"--web.listen-address=127.0.0.1:{stack.ports[name]}")
        for name in ("alertmanager", "prometheus"):
            stack.wait_for(name)
        prometheus = f"127.0.0.1:{stack.ports['prometheus']}"
        wait_until(lambda: [("fleet-ett", "up")] == targets_of(prometheus))
        assert answered(prometheus, "rules")["groups"]
        wait_until(lambda: answered(prometheus, "alertmanagers")["activeAlertmanagers"])
        (manager,) = answered(prometheus, "alertmanagers")["activeAlertmanagers"]
        told = [{"labels": {"alertname": "EttBudgetBurn", "severity": "page", "cluster": "c1"}}]
        httpx.post(manager["url"], json=told, timeout=60).raise_for_status()
        assert "firing: EttBudgetBurn" == messages.get(timeout=30)["attachments"][0]["title"]
    began = time.monotonic()
    stop(service)
    assert 0 == service.returncode
    assert time.monotonic() - began < seconds(SERVICES["service"]["stop_grace_period"], "")


@contextmanager
def receiver() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """Somebody who takes Slack's messages: the address, and what comes."""
    messages: Queue[dict[str, Any]] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/", messages
        finally:
            server.shutdown()
            thread.join()


def targets_of(prometheus: str) -> list[tuple[str, str]]:
    """The job of each target, and its health."""
    return [
        (each["labels"]["job"], each["health"]) for each in answered(prometheus, "targets")["activeTargets"]
    ]


def commands_of_the_readme() -> Iterator[tuple[list[str], str]]:
    """Each `docker compose run ... service WORDS > FILE` with its words and file."""
    for line in (DEPLOY / "README.md").read_text().splitlines():
        found = re.fullmatch(r"docker compose run --rm -T service (.+) > (secrets/\w+)(?: +#.*)?", line)
        if found:
            yield shlex.split(found[1]), found[2]
