"""A second, slow reading of the accounting: the state of a job at each nanosecond, straight from the rules.

It shares nothing with the core's sweep. For small jobs it is the judge of flattening, of the critical path
over ranks, of silence, and of who is blamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fleet_ett.core.taxonomy import DEFAULT

if TYPE_CHECKING:
    from ett_collector.wire import Event
    from fleet_ett.core.policy import Policy

START_STAGES = ("start", "schedule")


class State(NamedTuple):
    """What a rank, and so the job, is doing at one instant."""

    rung: float  # behind (small) to ahead (large)
    rank: int
    phase: str
    window: int | None


def at(event: Event) -> int:
    return (event.start or 0) - event.clock_offset_ns


def until(event: Event) -> int:
    return (event.end or 0) - event.clock_offset_ns


class Attempt:
    """One attempt read by the rules; `books()` gives (heading, phase, rank) for each nanosecond of it."""

    def __init__(
        self, name: str, events: list[Event], next_start: int | None, now: int, policy: Policy
    ) -> None:
        self.policy = policy
        own = [e for e in events if e.attempt == name]
        beats = [e for e in events if e.type == "heartbeat"]
        named = [b for b in beats if any(j["attempt"] == name for j in b.body["jobs"])]
        starts = [at(e) for e in own if e.type == "attempt_start"]
        self.start = min(starts or [at(e) for e in [*own, *named]])
        ends = [e for e in own if e.type == "attempt_end"]
        end = max(map(at, ends), default=None)
        if next_start is not None and (end is None or end > next_start):
            end = next_start
        self.live = end is None or end > now
        self.end = now if self.live or end is None else end
        told = [str(e.body["outcome"]) for e in sorted(ends, key=at) if e.body["outcome"] != "unknown"]
        self.failed = not self.live and (told or ["unknown"])[0] in ("failed", "unknown")
        self.beats = sorted(map(at, named))
        heard = [b for b in named if at(b) <= self.end]
        self.last_beat = {n: max(at(b) for b in heard if b.node == n) for n in {b.node for b in heard}}
        self.seen: dict[str, int] = {}
        for e in own:
            self.seen[e.node] = max(self.seen.get(e.node, 0), until(e) if e.end is not None else at(e))
        self.windows = self._windows([e for e in own if e.type == "steps"])
        self.spans = self._spans([e for e in own if e.type in ("phase", "phase_open")])
        self.deaths = [(e.rank, until(e)) for e in own if e.end is not None and e.body.get("aborted")]
        self.ranks = sorted({w["rank"] for w in self.windows} | {s["rank"] for s in self.spans})

    def _windows(self, events: list[Event]) -> list[dict[str, Any]]:
        out: dict[tuple[int, ...], dict[str, Any]] = {}
        order = sorted(events, key=lambda e: (e.rank, at(e), until(e), e.body["first"], e.body["last"], e.node,
                                              e.body.get("cursor_start", -1), e.body.get("cursor_end", -1),
                                              e.body.get("data_wait", -1)))  # fmt: skip
        for e in order:
            key = (e.rank or 0, at(e), e.body["first"], until(e), e.body["last"])
            low, high = max(at(e), self.start), min(until(e), self.end)
            one = {"rank": e.rank, "start": min(low, self.end), "end": max(high, self.start), "body": e.body}
            out.setdefault(key, {**one, "raw": (at(e), until(e))})
        return list(out.values())

    def _spans(self, events: list[Event]) -> list[dict[str, Any]]:  # noqa: C901 - the rules, one by one
        closers: dict[tuple[int | None, str], Event] = {}
        plain: list[Event] = []
        for e in sorted((e for e in events if e.type == "phase"), key=lambda e: (until(e), at(e), e.seq)):
            if "span" not in e.body:
                plain.append(e)
            elif (e.rank, e.body["span"]) not in closers:
                closers[e.rank, e.body["span"]] = e
        opens: dict[tuple[int | None, str], Event] = {}
        for e in sorted((e for e in events if e.type == "phase_open"), key=lambda e: (at(e), e.seq)):
            key = (e.rank, e.body["span"])
            if key not in closers:
                opens.setdefault(key, e)
        out = []
        for e in [*plain, *closers.values(), *opens.values()]:
            phase = e.body["phase"]
            if e.body.get("overlapped") or DEFAULT.phase(phase).kind == "external":
                continue
            flying = phase == "step_new_data"
            if flying and any(w["rank"] == e.rank and w["end"] > at(e) for w in self.windows):
                continue
            end = until(e) if e.end is not None else self._close(e)
            low, high = max(at(e), self.start), min(end, self.end)
            if high > low:
                if flying:
                    phase = "step_aborted" if e.body.get("aborted") or not self.live else "unaccounted"
                out.append({"rank": e.rank, "start": low, "end": high, "phase": phase, "flying": flying})
        return out

    def _close(self, e: Event) -> int:
        beat = self.last_beat.get(e.node)
        if beat is None or self.end - beat <= self.policy.heartbeat_ns:
            return self.end
        alive = max(beat, at(e), self.seen.get(e.node, 0))
        return alive if self.end - alive > self.policy.heartbeat_ns else self.end

    def rank_states(self, rank: int) -> list[State | None]:
        """The innermost thing of one rank at each instant; waits cut from the start of a window's net time."""
        spans = [s for s in self.spans if s["rank"] == rank]
        windows = [(i, w) for i, w in enumerate(self.windows) if w["rank"] == rank]
        waited: dict[int, int] = {}
        out: list[State | None] = []
        for t in range(self.start, self.end):
            phases = [s for s in spans if s["start"] <= t < s["end"] and not s["flying"]]
            if phases:
                p = min(phases, key=lambda s: (-s["start"], s["end"], DEFAULT.order(s["phase"]), s["phase"]))
                out.append(State(_rung(p["phase"]), rank, p["phase"], None))
                continue
            steps = [
                (-w["start"], w["end"], i, "step_new_data") for i, w in windows if w["start"] <= t < w["end"]
            ]
            steps += [
                (-s["start"], s["end"], -1, s["phase"])
                for s in spans
                if s["flying"] and s["start"] <= t < s["end"]
            ]
            if not steps:
                out.append(None)
                continue
            _, _, i, phase = min(steps, key=lambda x: (x[0], x[1], DEFAULT.order(x[3]), x[2]))
            if i < 0:
                out.append(State(300_001, rank, phase, None))
            elif waited.get(i, 0) < self.windows[i]["body"].get("data_wait", 0):
                waited[i] = waited.get(i, 0) + 1
                out.append(State(_rung("data_stall"), rank, "data_stall", None))
            else:
                out.append(State(300_000, rank, "step_new_data", i))
        return out

    def first_step(self) -> tuple[int, int] | None:
        """Start of the first step and end of its window on the slowest rank."""
        leading: dict[int, dict[str, Any]] = {}
        for w in self.windows:
            leading.setdefault(w["rank"], w)
        begun = [*leading.values(), *(s for s in self._flying())]
        if not begun:
            return None
        ordered = sorted(begun, key=lambda w: (w["start"], 0 if "phase" in w else 1, w["rank"]))
        earliest = next(w for w in [*self._flying(), *leading.values()] if w["start"] == ordered[0]["start"])
        if not self._flying():
            earliest = next(w for w in leading.values() if w["start"] == ordered[0]["start"])
        end = earliest["end"]
        return ordered[0]["start"], max([end, *(w["end"] for w in begun if w["start"] < end)])

    def _flying(self) -> list[dict[str, Any]]:
        """Steps in flight as they were reported."""
        return [s for s in self.spans if s["flying"]]


def _rung(phase: str) -> float:
    known = DEFAULT.phase(phase)
    if known.stage in START_STAGES:
        return 1 + DEFAULT.order(phase)
    if known.stage == "end":
        return 400_000
    return 0 if known.heading == "unknown" else 100_000


def critical_path(attempt: Attempt) -> list[tuple[str, int | None, int | None]]:
    """(phase, blamed rank, window) of the job at each instant of the attempt."""
    states = {rank: attempt.rank_states(rank) for rank in attempt.ranks}
    states = {rank: line for rank, line in states.items() if any(line)}
    first = attempt.first_step()
    begun = {r: attempt.start + next(i for i, s in enumerate(line) if s) for r, line in states.items()}
    earliest = min(begun.values(), default=attempt.end)
    ends = {r: attempt.start + max(i for i, s in enumerate(line) if s) + 1 for r, line in states.items()}
    out: list[tuple[str, int | None, int | None]] = []
    silent = _silent(attempt, ends) if len(states) > 1 else {}
    for i in range(attempt.end - attempt.start):
        t = attempt.start + i
        here = [line[i] for line in states.values() if line[i] is not None]
        for rank, start in begun.items():
            late = start > earliest and (first is None or start <= first[1])
            limit = start if first is None else min(start, max(first[0], earliest))
            if late and earliest <= t < limit:
                here.append(State(0, rank, "unaccounted", None))
        if not here:
            out.append(("", None, None))
            continue
        behind = min(here, key=lambda s: (s.rung, s.rank))  # type: ignore[union-attr]
        assert behind is not None
        gone = [r for r, since in silent.items() if t >= since]
        if behind.window is not None and gone:
            out.append(("hang", min(gone), None))
        else:
            out.append((behind.phase, behind.rank, behind.window))
    return _silence(attempt, out)


def _silent(attempt: Attempt, ends: dict[int, int]) -> dict[int, int]:
    """Ranks that fell silent while others step on, and since when."""
    if not attempt.windows:
        return {}
    stepping = max(w["end"] for w in attempt.windows)
    out: dict[int, int] = {}
    for rank, last_word in ends.items():
        mine = [w for w in attempt.windows if w["rank"] == rank]
        dead = any(who == rank and when >= last_word for who, when in attempt.deaths)
        if not mine and not dead:
            continue
        since = last_word
        if mine and not dead:
            done = mine[-1]["body"]["last"]
            since = max([last_word, *(w["end"] for w in attempt.windows if w["body"]["last"] <= done)])
        patience = attempt.policy.heartbeat_ns if attempt.live else 1
        if stepping - since >= patience:
            out[rank] = since
    return out


def _silence(
    attempt: Attempt, line: list[tuple[str, int | None, int | None]]
) -> list[tuple[str, int | None, int | None]]:
    """Holes filled: stall while heartbeats go on, unknown otherwise."""
    out = list(line)
    i = 0
    while i < len(out):
        if out[i][0]:
            i += 1
            continue
        j = i
        while j < len(out) and not line[j][0]:
            j += 1
        begin, end = attempt.start + i, attempt.start + j
        progressed = any(told[0] for told in line[:i])
        beats = [b for b in attempt.beats if begin < b <= end]
        hung = end - begin > attempt.policy.hang_ns or (attempt.failed and end == attempt.end)
        stall_until = begin
        if progressed and beats and hung:
            stall_until = end if end - beats[-1] <= attempt.policy.heartbeat_ns else beats[-1]
        for k in range(i, j):
            out[k] = ("hang" if attempt.start + k < stall_until else "unaccounted", None, None)
        i = j
    return out
