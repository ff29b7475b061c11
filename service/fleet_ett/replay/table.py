"""The books of a replayed file for people: where each job's time went, and who pays for the rest.

Renders the document of `report.py`, so that the table and the JSON can never disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet_ett.core.taxonomy import HEADINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECOND = 1_000_000_000
WIDTH = 24


def table(document: Mapping[str, Any]) -> str:
    """The document as text, one block a job, then the fleet and what was refused."""
    lines: list[str] = []
    for job, books in document["jobs"].items():
        lines += [*_job(job, books), ""]
    lines += [*_fleet(document)]
    return "\n".join(lines) + "\n"


def span(ns: int) -> str:
    """A duration as people read it: `1d 02:03:04.5`, or seconds below a minute."""
    seconds, rest = divmod(abs(ns), SECOND)
    sign = "-" if ns < 0 else ""
    fraction = f".{rest:09d}"[:4].rstrip("0").rstrip(".")
    if seconds < 60:
        return f"{sign}{seconds}{fraction} s"
    days, seconds = divmod(seconds, 86_400)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    return f"{sign}{days}d {clock}" if days else sign + clock


def percent(ratio: float | None) -> str:
    """A ratio as percent, `-` where there is none."""
    return "-" if ratio is None else f"{100 * ratio:.2f} %"


def _job(job: str, books: Mapping[str, Any]) -> Iterator[str]:
    running = ", still running" if books["live"] else ""
    wall = books["wall_ns"]
    yield f"{job}   ETT {percent(books['ett'])} of {span(wall)}{running}"
    yield f"  {books['attempts']} attempts, {_counts(books['failures'])}; {_steps(books['steps'])}"
    yield from _section("heading", _largest(books["headings"], keep=HEADINGS[0]), wall)
    yield from _section("phase", _largest(books["phases"]), wall)
    yield from _components(books["components"])
    yield from _incidents(books["incidents"])
    if books["held_up_by"]:
        first = books["held_up_by"][0]
        yield f"  most behind: {first['node']} (rank {first['rank']}), {span(first['ns'])}"
    if books["provisional_ns"]:
        yield f"  {span(books['provisional_ns'])} of it is provisional"
    if books["flags"]:
        yield f"  data quality: {', '.join(sorted({flag['flag'] for flag in books['flags']}))}"


def _counts(failures: Mapping[str, int]) -> str:
    named = [f"{count} {kind}" for kind, count in failures.items() if count]
    return f"ended early: {', '.join(named)}" if named else "no failure"


def _steps(steps: Mapping[str, int | None]) -> str:
    replayed = "an unknown number" if steps["replayed"] is None else steps["replayed"]
    return (
        f"{steps['productive']} steps, {replayed} of them again"
        if replayed
        else f"{steps['productive']} steps"
    )


def _largest(amounts: Mapping[str, int], keep: str | None = None) -> list[tuple[str, int]]:
    """Amounts that are not 0, `keep` first, then the largest."""
    found = [(name, ns) for name, ns in amounts.items() if ns or name == keep]
    return sorted(found, key=lambda one: (one[0] != keep, -one[1], one[0]))


def _section(title: str, rows: list[tuple[str, int]], wall: int) -> Iterator[str]:
    yield f"  {title}"
    for name, ns in rows:
        yield f"    {name:<{WIDTH}} {span(ns):>18} {percent(ns / wall if wall else None):>9}"


def _components(components: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if not components:
        return
    yield f"  {'component':<{WIDTH + 2}} {'direct':>18} {'induced':>18}"
    rows = sorted(components.items(), key=lambda one: (-one[1]["direct_ns"], -one[1]["induced_ns"], one[0]))
    for name, cost in rows:
        yield f"    {name:<{WIDTH}} {span(cost['direct_ns']):>18} {span(cost['induced_ns']):>18}"


def _incidents(incidents: list[Mapping[str, Any]]) -> Iterator[str]:
    if incidents:
        yield "  incidents"
    for one in incidents:
        where = f" on {one['node']}" if one["node"] else ""
        yield (
            f"    attempt {one['attempt']}: {one['cause']}{where} ({one['kind']}, {one['component']}) cost "
            f"{span(one['induced_ns'])}: stall {span(one['stall_ns'])}, gap {span(one['gap_ns'])}, "
            f"restart {span(one['restart_ns'])}, replay {span(one['replay_ns'])}"
        )


def _fleet(document: Mapping[str, Any]) -> Iterator[str]:
    fleet = document["fleet"]
    yield f"fleet   ETT {percent(fleet['ett'])} by GPU time, {len(document['jobs'])} jobs"
    if document["duplicates"] or document["conflicts"]:
        yield f"  {document['duplicates']} duplicates, {document['conflicts']} conflicts"
    for one in document["quarantined"]:
        yield f"  line {one['line']} refused: {one['reason']}"
