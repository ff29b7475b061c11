"""Sources at work: each in a thread of its own, so that one that is slow, hangs or fails holds up nothing else.

What they find waits in a queue until the agent's cycle fetches it; while that is full the sources wait, and what they
read waits in the kernel or in its file.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ett_collector.agent.sources.registry import SOURCES, make
from ett_collector.agent.sources.source import Missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ett_collector.agent.sources.source import Read, Surroundings

QUEUE = 1000  # reads
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0  # after a failure
LOOK_AGAIN_S = 300.0  # whether what was missing has come
STAND_BY_S = 2.0
HANGS_S = 60.0
UP, MISSING, FAILING, STANDING_BY, HANGING = "up", "missing", "failing", "standing by", "hanging"

log = logging.getLogger("ett-agent")


class Found(NamedTuple):
    """One read of one source."""

    source: str
    read: Read


class Health(NamedTuple):
    """How a source is. `state` is one of the five words above, `why` what it said last."""

    name: str
    state: str
    why: str
    failures: int
    findings: int


@dataclass
class _State:
    """What a source's thread says of itself; `calling` is since when (monotonic s) it is inside a call."""

    state: str = STANDING_BY
    why: str = "begins"
    failures: int = 0
    in_a_row: int = 0
    findings: int = 0
    calling: float | None = None
    told: str = ""

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        self.calling = time.monotonic()
        try:
            yield
        finally:
            self.calling = None

    def be(self, state: str, why: str, name: str) -> None:
        """Go on to a state; what is new is said once."""
        self.state, self.why = state, why
        if self.told != f"{state}: {why}":
            self.told = f"{state}: {why}"
            log.log(
                {FAILING: logging.WARNING, HANGING: logging.WARNING}.get(state, logging.DEBUG),
                "source %s is %s%s",
                name,
                state,
                f": {why}" if why else "",
            )


class Sources:
    """The sources of some names. `cursors` are those of the state, by name."""

    def __init__(
        self, names: Sequence[str], around: Surroundings, cursors: Mapping[str, dict[str, Any]]
    ) -> None:
        self.names = tuple(names)
        self.around = around
        self.cursors = dict(cursors)
        self._states = {name: _State() for name in names}
        self._queue: deque[Found] = deque()
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        for name in self.names:
            threading.Thread(target=self._run, args=(name,), name=f"ett-{name}", daemon=True).start()

    def stop(self) -> None:
        """End soon; one that hangs is left behind."""
        self._stop.set()

    def drain(self) -> list[Found]:
        """What was found since the last call."""
        for name, state in self._states.items():
            if self._hangs(state) and state.told != HANGING:
                log.warning("source %s hangs; the others go on", name)
                state.told = HANGING
        found = []
        while self._queue:
            found.append(self._queue.popleft())
        return found

    def health(self) -> list[Health]:
        """How all of them are."""
        out = []
        for name, one in self._states.items():
            state = HANGING if self._hangs(one) else one.state
            why = f"in one call for over {HANGS_S:.0f} s" if state == HANGING else one.why
            out.append(Health(name, state, why, one.failures, one.findings))
        return out

    def is_outdone(self, name: str) -> bool:
        """Whether a better source is up, which tells the same."""
        return any(
            better in self._states
            and self._states[better].state == UP
            and not self._hangs(self._states[better])
            for better in SOURCES[name].better
        )

    def _hangs(self, state: _State) -> bool:
        return state.calling is not None and time.monotonic() - state.calling > HANGS_S

    def _run(self, name: str) -> None:
        row, state = SOURCES[name], self._states[name]
        if row.better and not row.looks_on:
            self._stop.wait(STAND_BY_S)  # the better one may be about to begin
        while not self._stop.is_set():
            if self.is_outdone(name) and not row.looks_on:
                state.be(STANDING_BY, f"{row.better[0]} tells the same", name)
                self._stop.wait(STAND_BY_S)
                continue
            self._stop.wait(self._live(name))

    def _live(self, name: str) -> float:
        """One life of a source, up to its failure or the end; seconds until the next."""
        row, state = SOURCES[name], self._states[name]
        source = None
        try:
            with state.call():
                source = make(name, self.around, self.cursors.get(name))
                source.open()
            while not self._stop.is_set() and (row.looks_on or not self.is_outdone(name)):
                with state.call():
                    read = source.read()
                state.be(UP, "", name)
                state.in_a_row = 0
                self._put(name, read)
                if row.pause_s:
                    self._stop.wait(row.pause_s)
        except Missing as why:
            state.be(MISSING, str(why), name)
            return LOOK_AGAIN_S
        except Exception as error:  # noqa: BLE001 - whatever a driver's library or a device comes up with
            state.failures += 1
            state.in_a_row += 1
            state.be(FAILING, f"{type(error).__name__}: {error}", name)
            longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(state.in_a_row - 1, 10))
            return random.uniform(longest / 2, longest)  # noqa: S311 - spreads retries, hides nothing
        finally:
            with contextlib.suppress(Exception):
                if source is not None:
                    source.close()
        return 0.0

    def _put(self, name: str, read: Read) -> None:
        if read.cursor is not None:
            self.cursors[name] = read.cursor
        if not read.findings and read.cursor is None:
            return
        self._states[name].findings += len(read.findings)
        while len(self._queue) >= QUEUE and not self._stop.is_set():
            self._stop.wait(1.0)
        self._queue.append(Found(name, read))
