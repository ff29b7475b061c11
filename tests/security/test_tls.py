"""TLS from end to end: `fleet-ett serve` with a certificate, and `ett-agent` that trusts one authority."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ett_collector.agent.config import AgentConfig
from ett_collector.agent.options import WrongSetting
from ett_collector.agent.post import opener_for, post
from fleet_ett.errors import Invalid
from fleet_ett.listening import tls_files
from fleet_ett.settings import Settings
from tests.postgres.embedded import wait_until
from tests.security.authority import Authority
from tests.security.bearers import Tokens, bearer
from tests.security.processes import environment, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

BODY = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"


def environment_of(database_url: str, cert: Path, key: Path) -> dict[str, str]:
    told = {"ETT_DATABASE_URL": database_url, "ETT_TLS_CERT": f"{cert}", "ETT_TLS_KEY": f"{key}"}
    return {**told, "ETT_ATTRIBUTION_WORKERS": "0"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def url(database_url: str, authority: Authority) -> Iterator[str]:
    """A service whose certificate is for 127.0.0.1."""
    with serving(environment_of(database_url, *authority.sign("127.0.0.1"))) as found:
        yield found


def test_the_agent_trusts_its_authority_and_the_right_name_alone(
    url: str, authority: Authority, tmp_path: Path
) -> None:
    assert url.startswith("https://127.0.0.1:")
    status = post(opener_for(url, str(authority.pem)), f"{url}/v1/events", BODY, {}, 30).status
    assert 400 == status  # it is heard: an empty body is no batch
    other = Authority(tmp_path, "other")
    for address, ca in (
        (url, ""),  # not one of the machine's authorities
        (url, str(other.pem)),
        (url.replace("127.0.0.1", "localhost"), str(authority.pem)),  # not the certificate's name
    ):
        answer = post(opener_for(address, ca), f"{address}/v1/events", BODY, {}, 30)
        assert (0, True) == (answer.status, "certificate verify failed" in answer.error), answer.error
    plain = url.replace("https:", "http:")
    assert 0 == post(opener_for(plain), f"{plain}/v1/events", BODY, {}, 30).status


def test_a_certificate_that_is_over_is_refused(database_url: str, tmp_path: Path) -> None:
    old = Authority(tmp_path)
    with serving(environment_of(database_url, *old.sign("127.0.0.1", is_over=True))) as url:
        answer = post(opener_for(url, str(old.pem)), f"{url}/v1/events", BODY, {}, 30)
        assert (0, True) == (answer.status, "expired" in answer.error), answer.error


def test_an_agent_delivers_over_tls_and_takes_up_a_rotated_token(
    url: str,
    database_url: str,
    authority: Authority,
    engine: Engine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its token comes from a file; the secret that replaces it there is used without a restart."""
    tokens = Tokens(database_url, capsys)
    token = tokens.run("create", "--name", "a", "--scope", "ingest", "--cluster", "c", "--node", "tls-node")
    file = tmp_path / "token"
    file.write_text("ett_" + "0" * 16 + "_" + "A" * 43 + "\n")
    file.chmod(0o644)
    told = {
        "ETT_URL": url,
        "ETT_NODE": "tls-node",
        "ETT_SPOOL_DIR": str(tmp_path / "spool"),
        "ETT_AGENT_CA": str(authority.pem),
        "ETT_AGENT_TOKEN_FILE": str(file),
        "ETT_AGENT_HEARTBEAT_S": "0.2",
    }
    agent = subprocess.Popen(
        [sys.executable, "-m", "ett_collector.agent.main"],
        env=environment(**told),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert agent.stderr
        said = ""
        while " 401 " not in said:
            line = agent.stderr.readline()
            assert line, said
            said += line
        file.write_text(token + "\n")
        wait_until(lambda: is_known(engine, "tls-node"))  # the agent waits longer after each refusal
    finally:
        agent.terminate()
        said += agent.communicate()[1]
    assert "every user of this machine can read or change" in said
    assert token.rpartition("_")[2] not in said
    assert f"{token}" not in " ".join(str(one) for one in agent.args)


def is_known(engine: Engine, node: str) -> bool:
    with engine.connect() as conn:
        found = conn.exec_driver_sql("SELECT count(*) FROM nodes WHERE node = %s", (node,)).scalar_one()
    return bool(found)


def test_files_that_do_not_fit_are_told_before_the_service_starts(
    authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.sign("127.0.0.2")
    _, other = Authority(tmp_path).sign("127.0.0.3")
    _, locked = Authority(tmp_path).sign("127.0.0.4", has_password=True)
    for files in ((cert, other), (cert, tmp_path / "none"), (key, cert), (cert, locked)):
        with pytest.raises(Invalid, match="ETT_TLS_"):
            tls_files(Settings(tls_cert=files[0], tls_key=files[1]))
    with pytest.raises(Invalid, match="go together"):
        Settings.from_env({"ETT_TLS_CERT": str(cert)})


def test_an_agent_does_not_start_with_what_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "two").write_text("one\r\nX-Other: two\n")
    for name, value, why in (
        ("ETT_AGENT_CA", "none", "No such file"),
        ("ETT_AGENT_CA", "empty", "no certificate or crl found"),
        ("ETT_AGENT_TOKEN_FILE", "none", "No such file"),
        ("ETT_AGENT_TOKEN_FILE", "two", "does not hold a token"),
    ):
        with pytest.raises(WrongSetting) as refused:
            AgentConfig.from_args([], {name: str(tmp_path / value)})
        said = str(refused.value)
        assert name in said
        assert why.lower() in said.lower(), said


def test_nobodys_word_is_taken_for_where_a_request_comes_from(
    url: str, database_url: str, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    """X-Forwarded-For does not reach the audit log."""
    tokens = Tokens(database_url, capsys)
    read = bearer(tokens.run("create", "--name", "r", "--scope", "read", "--all"))
    asked = {
        **read,
        "X-Forwarded-For": "203.0.113.7",
        "X-Forwarded-Proto": "http",
        "Forwarded": "for=203.0.113.7",
    }
    assert 403 == post(opener_for(url, str(authority.pem)), f"{url}/v1/events", BODY, asked, 30).status
    (line,) = [line for line in tokens.run("audit").splitlines() if "beyond the scope read" in line]
    assert '"from": "127.0.0.1"' in line
