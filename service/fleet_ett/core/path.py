"""From ranks to the job: the critical path of a synchronous job (accounting.md, section 3).

At each instant the job is in the state of the rank that is furthest behind; the lowest rank on a tie is
blamed. A rank that fell silent while others step on holds the job up. Where no rank reports at all,
`silence.py` tells a stall from the unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fleet_ett.core import cover
from fleet_ett.core.intervals import IntervalSet
from fleet_ett.core.repeats import NEW, REPLAYED, SPLIT
from fleet_ett.core.taxonomy import HANG, UNKNOWN
from fleet_ett.core.track import Track

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet_ett.core.chains import Chains
    from fleet_ett.core.facts import Facts
    from fleet_ett.core.policy import Policy
    from fleet_ett.core.steps import Steps
    from fleet_ett.core.tiles import Bounds, Names, Tiles

    Ints = NDArray[np.int64]

# Rungs from behind to ahead; the phases of start-up stand between the first two in taxonomy order.
UNREPORTED, BLOCKING, STEPS, END = 0, 100_000, 300_000, 400_000
# Among steps replay is furthest behind, as all ranks have to be on new data; a window that is partly covered
# says least: it decides where no other rank's window does.
_LAG = np.zeros(3, dtype=np.int64)
_LAG[[REPLAYED, NEW, SPLIT]] = range(3)
_ROW = 1 << 32  # below the rung stands the row of the tile, so that the lowest rank wins a tie


@dataclass(frozen=True, slots=True)
class FirstStep:
    """When the first step began and when its window ended on the slowest rank (ns); None without one."""

    start: int | None
    end: int | None


def first_step(items: Tiles, steps: Steps) -> FirstStep:
    """The first step of an attempt: of a window, or of a step in flight where there is no window.

    `items`: as reported; what is nested in a step in flight does not end it.
    """
    flying = np.flatnonzero(items.in_flight)
    starts, ends = items.start[flying], items.end[flying]
    if len(steps):
        leading = steps.leading()
        starts, ends = (
            np.append(steps.start[leading], starts),
            np.append(steps.end[leading], ends),
        )
    if not len(starts):
        return FirstStep(None, None)
    earliest = ends[np.argmin(starts)]
    return FirstStep(int(starts.min()), int(ends[starts < earliest].max(initial=earliest)))


def job_track(  # noqa: PLR0913, PLR0917 - the sweep's inputs, each of its own kind
    facts: Facts,
    tiles: Tiles,
    steps: Steps,
    chains: Chains,
    first: FirstStep,
    names: Names,
    bounds: Bounds,
    policy: Policy,
) -> Track:
    """The job's states where some rank reports, in order and disjoint; silence is left open."""
    ranks = np.flatnonzero(np.append(True, tiles.rank[1:] != tiles.rank[:-1]))[: len(tiles.rank)]
    if len(ranks) < 2:
        lone = np.zeros(len(tiles.rank), dtype=bool)
        return Track(
            tiles.start,
            tiles.end,
            tiles.phase,
            tiles.rank,
            tiles.node,
            tiles.window,
            tiles.key,
            lone,
        )
    rungs = _rungs(tiles, chains, names, policy)
    unreported, holders = _unreported(tiles, ranks, first)
    all_starts = np.concatenate((tiles.start, unreported[:, 0]))
    all_ends = np.concatenate((tiles.end, unreported[:, 1]))
    all_rungs = np.concatenate((rungs, np.full(len(holders), UNREPORTED, dtype=np.int64)))
    rows = np.concatenate((np.arange(len(rungs)), holders))
    starts, ends, winner = cover.runs(*cover.smallest(all_starts, all_ends, all_rungs * _ROW + rows))
    rung, row = winner // _ROW, winner % _ROW
    told = rung > UNREPORTED
    told |= (rung == UNREPORTED) & (rungs[row] == UNREPORTED) & (tiles.start[row] <= starts)
    track = Track(
        starts,
        ends,
        np.where(told, tiles.phase[row], names.code(UNKNOWN)),
        tiles.rank[row],
        tiles.node[row],
        np.where(told, tiles.window[row], -1),
        np.where(told, tiles.key[row], -1),
        np.zeros(len(row), dtype=bool),
    )
    track = _ahead(track, rung, all_starts, all_ends, all_rungs)
    return _silent_ranks(track, facts, tiles, steps, names, bounds, policy)


def _rungs(tiles: Tiles, chains: Chains, names: Names, policy: Policy) -> Ints:
    def rung(name: str) -> int:
        phase = policy.taxonomy.phase(name)
        if phase.stage in ("start", "schedule"):
            return 1 + policy.taxonomy.order(name)
        if phase.stage == "end":
            return END
        return UNREPORTED if phase.heading == "unknown" else BLOCKING

    by_code = np.array([rung(name) for name in names.names], dtype=np.int64)
    rungs: Ints = by_code[tiles.phase]
    stepping = tiles.window >= 0
    rungs[stepping] = STEPS + _LAG[chains.verdict[tiles.window[stepping]]]
    rungs[tiles.in_flight] = STEPS + len(_LAG)
    return rungs


def _unreported(tiles: Tiles, ranks: Ints, first: FirstStep) -> tuple[Ints, Ints]:
    """Ranks that have not reported yet while others have: ([start, end) each, row of their first tile).

    A rank that appears after the first step's window joined later and held nobody up before.
    """
    begun = tiles.start[ranks]
    earliest = int(begun.min())
    late = begun > earliest
    until = begun
    if first.start is not None and first.end is not None:
        late &= begun <= first.end
        until = np.minimum(begun, max(first.start, earliest))
    late &= until > earliest
    holes = np.stack((np.full(int(late.sum()), earliest, dtype=np.int64), until[late]), axis=1)
    return holes, ranks[late]


def _ahead(track: Track, rung: Ints, starts: Ints, ends: Ints, rungs: Ints) -> Track:
    """Mark the pieces during which some rank stood on a higher rung than the job."""
    above: dict[int, IntervalSet] = {}
    reached = IntervalSet()
    points: list[Ints] = []
    for level in np.unique(rungs)[::-1]:
        above[int(level)] = reached
        points.append(_inside(track, rung, int(level), np.concatenate((reached.starts, reached.ends))))
        here = rungs == level
        reached = reached | IntervalSet.of(starts[here], ends[here])
    cut = track.cut(np.concatenate(points))
    levels = rung[np.searchsorted(track.start, cut.start, side="right") - 1]
    for level, others in above.items():
        here = np.flatnonzero(levels == level)
        cut.ahead[here] = others.covered(cut.start[here], cut.end[here]) > 0
    return cut


def _inside(track: Track, rung: Ints, level: int, points: Ints) -> Ints:
    row = np.searchsorted(track.start, points, side="right") - 1
    inside: Ints = points[(row >= 0) & (rung[row] == level)]
    return inside


def _dead(facts: Facts, rank: Ints, last_word: Ints) -> NDArray[np.bool_]:
    """Which ranks are known to be dead: the last thing said of them was closed for a process that died."""
    out = np.zeros(len(rank), dtype=bool)
    spans = facts.spans
    for row in np.flatnonzero(spans.aborted):
        at = int(np.searchsorted(rank, spans.rank[row]))
        if at < len(rank) and rank[at] == spans.rank[row]:
            out[at] |= bool(spans.end[row] >= last_word[at])
    return out


def _silent_ranks(
    track: Track,
    facts: Facts,
    tiles: Tiles,
    steps: Steps,
    names: Names,
    bounds: Bounds,
    policy: Policy,
) -> Track:
    """Book as stall the steps of others after a rank fell silent, and blame that rank."""
    if not len(steps):
        return track
    final = np.flatnonzero(np.append(tiles.rank[1:] != tiles.rank[:-1], True))
    rank, node, last_word = tiles.rank[final], tiles.node[final], tiles.end[final]
    stepping_until = int(steps.end.max())
    if int(last_word.min()) >= stepping_until:
        return track
    dead = _dead(facts, rank, last_word)
    window_rows = np.flatnonzero(np.append(steps.rank[1:] != steps.rank[:-1], True))
    position = np.searchsorted(steps.rank[window_rows], rank)
    position[position == len(window_rows)] = 0
    stepped = steps.rank[window_rows[position]] == rank
    by_last = np.argsort(steps.last, kind="stable")
    reach = np.maximum.accumulate(steps.end[by_last])
    done = steps.last[window_rows[position]]
    same_steps = reach[np.searchsorted(steps.last[by_last], done, side="right") - 1]
    since = np.where(stepped & ~dead, np.maximum(last_word, same_steps), last_word)
    patience = policy.heartbeat_ns if bounds.live else 1
    silent = np.flatnonzero((stepped | dead) & (stepping_until - since >= patience))
    if not len(silent):
        return track
    silent = silent[np.lexsort((rank[silent], since[silent]))]
    begins = since[silent]
    lowest = np.minimum.accumulate(rank[silent])
    track = track.cut(begins)
    rows = np.flatnonzero((track.window >= 0) & (track.start >= begins[0]))
    if not len(rows):
        return track
    blamed = lowest[np.searchsorted(begins, track.start[rows], side="right") - 1]
    node_of = dict(zip(rank.tolist(), node.tolist(), strict=True))
    track = track.take(np.arange(len(track)))
    track.phase[rows], track.window[rows], track.key[rows] = names.code(HANG), -1, -1
    track.rank[rows], track.ahead[rows] = blamed, True
    track.node[rows] = [node_of[int(r)] for r in blamed]
    for one in np.unique(blamed):
        amount = int((track.end[rows] - track.start[rows])[blamed == one].sum())
        facts.flag(
            "silent_rank",
            rank=int(one),
            node=facts.node_names[node_of[int(one)]],
            amount=amount,
        )
    return track
