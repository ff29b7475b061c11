"""A job's books as text: where the time went, whose it was, what was done twice, and that it adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SECOND_NS = 1_000_000_000


def ledger_text(detail: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> str:
    """The text for the answer of `/v1/jobs/{job}` and the rows of its ledger by phase and repeated."""
    parts = [_headings(detail), _owners(detail), _incidents(detail), _twice(detail, cells), _held(detail)]
    return "\n\n".join("\n".join(part) for part in parts)


def _headings(detail: Mapping[str, Any]) -> Iterator[str]:
    wall = detail["wall_ns"]
    ett, attempts = 100 * detail["ett"], detail["num_attempts"]
    yield f"Job {detail['job']}: ETT {ett:.1f}% of {_seconds(wall)} s, {attempts} attempts"
    yield f"  {'heading':<16}{'seconds':>10}{'share':>9}{'GPU-seconds':>13}"
    for heading, ns in sorted(detail["headings"].items(), key=lambda one: -one[1]):
        if ns:
            gpu = _seconds(detail["gpu_headings"][heading])
            yield f"  {heading:<16}{_seconds(ns):>10}{100 * ns / wall:>8.1f}%{gpu:>13}"
    total = sum(detail["headings"].values())
    gpu = _seconds(sum(detail["gpu_headings"].values()))
    yield f"  {'sum':<16}{_seconds(total):>10}{100 * total / wall:>8.1f}%{gpu:>13}"
    span = detail["end"] - detail["start"]
    verdict = "balance" if total == wall == span else "DO NOT BALANCE"
    yield f"The books {verdict}: headings {total} ns, job {wall} ns, first allocation to last release {span} ns"


def _owners(detail: Mapping[str, Any]) -> Iterator[str]:
    yield "Who owns the loss (seconds): direct, by whose phase it was; induced, by who made an attempt end"
    yield f"  {'component':<16}{'direct':>10}{'induced':>10}"
    losses = detail["components"].items()
    for name, loss in sorted(losses, key=lambda one: -(one[1]["direct_ns"] + one[1]["induced_ns"])):
        if loss["direct_ns"] or loss["induced_ns"]:
            yield f"  {name:<16}{_seconds(loss['direct_ns']):>10}{_seconds(loss['induced_ns']):>10}"


def _incidents(detail: Mapping[str, Any]) -> Iterator[str]:
    yield f"Incidents: {len(detail['incidents'])}"
    for one in detail["incidents"]:
        where = f" on {one['node']}" if one["node"] else ""
        yield (
            f"  {one['attempt']} ended by {one['cause']}{where} ({one['component']}, {one['status']}): "
            f"stall {_seconds(one['stall_ns'])}, gap {_seconds(one['gap_ns'])}, "
            f"restart {_seconds(one['restart_ns'])}, replay {_seconds(one['replay_ns'])} s"
        )


def _twice(detail: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "What was done twice"
    steps, replay = detail["steps"], _seconds(detail["headings"]["replay"])
    yield f"  {steps['replayed']} of {steps['productive']} steps trained again: {replay} s"
    for row in sorted(cells, key=lambda one: -one["wall_ns"]):
        if row["repeated"] and row["heading"] == "startup":
            yield f"  {row['phase']:<24}{_seconds(row['wall_ns']):>10} s"


def _held(detail: Mapping[str, Any]) -> Iterator[str]:
    yield "Who held the job up most"
    for one in detail["held_up_by"][:3]:
        yield f"  {one['node']} rank {one['rank']}: {_seconds(one['ns'])} s"


def _seconds(ns: int) -> str:
    return f"{ns / SECOND_NS:.3f}"
