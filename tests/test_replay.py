"""`fleet-ett replay` as a command: files in, JSON or a table out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_ett.replay.table import percent, span
from tests.scenarios import FOLDER

TIMELINES = Path(__file__).parent / "data" / "goodput_timelines.jsonl"
ROLLBACK = FOLDER / "b02_basic_rollback" / "events.jsonl"


def replay(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "fleet_ett", "replay", *args]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


def test_json_of_a_wire_file() -> None:
    """The document of wire.md."""
    answer = json.loads(replay(str(ROLLBACK), "--json").stdout)
    assert 0.88 == answer["jobs"]["job-1"]["ett"]
    assert {"jobs", "fleet", "quarantined", "duplicates", "conflicts"} == set(answer)


def test_table_of_a_wire_file() -> None:
    """The same books for people."""
    done = replay(str(ROLLBACK))
    text = done.stdout.decode()
    assert 0 == done.returncode
    assert "job-1   ETT 88.00 % of 00:41:40" in text
    assert "2 attempts, ended early: 1 unknown; 1100 steps, 100 of them again" in text
    assert text.count("\n") > 15


def test_as_of_is_the_time_of_the_question() -> None:
    """Asked an hour after the last stamp, a live attempt has gone on for an hour."""
    at = 1_772_452_800_000_000_000
    line = json.dumps(
        {
            "type": "attempt_start", "job": "j", "attempt": "a", "ts": at, "gpus": 2,
            "node": "n", "incarnation": "i", "seq": 1,
        }
    )  # fmt: skip
    done = replay("-", "--as-of", str(at + 3_600_000_000_000), "--json", stdin=line.encode())
    assert 7_200_000_000_000 == json.loads(done.stdout)["jobs"]["j"]["gpu_ns"]


def test_bytes_that_are_no_text_are_refused_by_line() -> None:
    """Invalid UTF-8 sinks its line alone; Windows line ends and a missing last newline do no harm."""
    lines = [b'{"node": "\xff"}', *ROLLBACK.read_bytes().splitlines()]
    answer = json.loads(replay("-", "--json", stdin=b"\r\n".join(lines)).stdout)
    assert [{"line": 1, "reason": "not UTF-8"}] == answer["quarantined"]
    assert 0.88 == answer["jobs"]["job-1"]["ett"]


@pytest.mark.parametrize("indent", [None, 2])
def test_goodput_timeline_on_one_line_or_many(indent: int | None) -> None:
    """One timeline, however it is laid out."""
    first = json.loads(TIMELINES.read_text().splitlines()[0])
    done = replay("-", "--format", "goodput", "--json", stdin=json.dumps(first, indent=indent).encode())
    assert 15.0 == json.loads(done.stdout)["jobs"]["plain_run"]["goodput"]["productive_s"]


def test_unreadable_file_is_said_in_one_line() -> None:
    """No traceback."""
    done = replay("/nowhere/events.jsonl")
    assert 2 == done.returncode
    assert b"cannot read /nowhere/events.jsonl" in done.stderr
    assert b"Traceback" not in done.stderr


def test_empty_file_has_no_figure() -> None:
    """Null, not 0 and not an error."""
    answer = json.loads(replay("-", "--json").stdout)
    assert ({}, None) == (answer["jobs"], answer["fleet"]["ett"])


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 s"),
        (1_500_000_000, "1.5 s"),
        (61_000_000_000, "00:01:01"),
        (-61_000_000_000, "-00:01:01"),
        (90_061_250_000_000, "1d 01:01:01.25"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    """Exact to the millisecond, days apart."""
    assert text == span(ns)


def test_percent_of_nothing() -> None:
    """No ratio is a dash."""
    assert ["-", "50.00 %"] == [percent(None), percent(0.5)]
