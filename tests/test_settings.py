"""Settings from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_ett.errors import Invalid
from fleet_ett.settings import OPTIONS, Settings


def test_every_option_has_a_default_that_works_on_a_laptop() -> None:
    """Nothing set: loopback, an embedded database, one worker."""
    settings = Settings.from_env({"PATH": "/bin", "ETT_PORT": ""})
    assert Settings() == settings
    assert ("127.0.0.1", 8080, None) == (settings.host, settings.port, settings.database_url)


def test_durations_are_kept_in_nanoseconds() -> None:
    """Names in the environment end in their unit."""
    settings = Settings.from_env({"ETT_LATENESS_S": "60", "ETT_HANG_S": "5", "ETT_DATA_DIR": "/data"})
    assert (60_000_000_000, 5_000_000_000, Path("/data")) == (
        settings.lateness_ns,
        settings.hang_ns,
        settings.data_dir,
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ETT_DATABSE_URL", "ETT_DATABASE_URL"),
        ("ETT_PROT", "ETT_PORT"),
        ("ETT_RETENTION", "ETT_RETENTION_DAYS"),
    ],
)
def test_a_misspelt_name_is_an_error_that_names_the_nearest(name: str, near: str) -> None:
    """A setting that does nothing is worse than a service that does not start."""
    with pytest.raises(Invalid, match=f"unknown setting {name}: did you mean {near}"):
        Settings.from_env({name: "1"})


def test_the_collectors_names_are_theirs() -> None:
    """One machine may run the service, an agent and a trainer."""
    Settings.from_env({"ETT_JOB": "dlrm-7", "ETT_SPOOL_DIR": "/tmp/spool", "ETT_AGENT_INTERVAL_S": "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ETT_PORT", "http"),
        ("ETT_PORT", "65536"),
        ("ETT_PORT", "-1"),
        ("ETT_PORT", "1" * 5000),
        ("ETT_HANG_S", "0"),
        ("ETT_LATENESS_S", "1.5"),
        ("ETT_LOG_LEVEL", "loud"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    """The message names the variable and what it may be."""
    with pytest.raises(Invalid, match=f"{name} must be"):
        Settings.from_env({name: value})


def test_only_postgres_is_a_database_and_passwords_are_not_shown() -> None:
    """There is no second SQL dialect; the refusal does not repeat the address."""
    with pytest.raises(Invalid) as caught:
        Settings.from_env({"ETT_DATABASE_URL": "mysql://ett:secret@db/ett"})
    assert "postgresql://" in caught.value.message
    assert "secret" not in caught.value.message


def test_addresses_with_passwords_may_stand_in_files(tmp_path: Path) -> None:
    """A secret that is mounted; whoever reads the environment does not see it."""
    kept = tmp_path / "urls"
    kept.write_text("postgresql://ett:secret@one/ett,postgresql://ett:secret@two/ett\n")
    settings = Settings.from_env({"ETT_SHARD_URLS_FILE": str(kept)})
    assert ("postgresql://ett:secret@one/ett", "postgresql://ett:secret@two/ett") == settings.shard_urls
    kept.write_text("postgresql://ett:secret@one/ett\n")
    name = "ETT_DATABASE_URL_FILE"
    assert "postgresql://ett:secret@one/ett" == Settings.from_env({name: str(kept)}).database_url
    with pytest.raises(Invalid, match="both set"):
        Settings.from_env({name: str(kept), "ETT_DATABASE_URL": "postgresql://"})
    for content, told in ((b"", "is empty"), (b"\xff", "it is no text"), (None, "No such file")):
        kept.unlink()
        if content is not None:
            kept.write_bytes(content)
        with pytest.raises(Invalid, match=told):
            Settings.from_env({name: str(kept)})
        kept.touch()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("127.8.8.8", True),
        ("0.0.0.0", False),
        ("::", False),
        ("ett.example", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, *, expected: bool) -> None:
    """A name that is not known to be loopback is not."""
    assert expected == Settings.from_env({"ETT_HOST": host}).is_loopback


def test_every_option_is_documented() -> None:
    """Each has a row for the table of the README and for --help."""
    assert all(text for text in OPTIONS.values())
