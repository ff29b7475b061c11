"""What the hooks of a process share: its recorder, what came before there was one, and which of them have failed.

A process becomes a recorded one by a trainer's act (a process group, an optimizer, a distributed checkpoint), or
at once where torchrun started it as a rank (`process_start.py`). So a launcher, which has the same environment
and imports the same framework, is never taken for a rank.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import monotonic_ns

from ett_collector.current import _Current, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from ett_collector.hooks.watched import Watched

# The pid of the recorded process: what it starts (data loader's and compile workers, tools) finds it and stays out.
MARK = "ETT_AUTO_PID"


class _Session:
    notices: list[tuple[str, str]] = []  # noqa: RUF012 - from before there was a recorder
    told: set[str] = set()  # noqa: RUF012 - hooks
    built: tuple[int, int] | None = None  # first and last part of a model, monotonic ns
    when_built: Callable[[], object] | None = None
    is_exit_watched = False
    exit_code = 0


def live() -> Watched | None:
    """The recorder, None where this process is not recorded."""
    return _Current.live  # type: ignore[return-value] # `process_start` has it be a `Watched`


def act(rank: int | None = None, world_size: int | None = None) -> Watched | None:
    """This thread does what a trainer does: record from here on, where nobody does yet."""
    recorder = live()
    if recorder is None:
        if not is_free():
            return None
        start(rank=rank, world_size=world_size)
        recorder = live()
        if recorder is None:
            return None
    recorder.thread = get_ident()
    recorder.settle()
    return recorder


def is_free() -> bool:
    """Whether no process above this one is recorded."""
    return os.environ.get(MARK, "") in ("", str(os.getpid()))


def part_of_model() -> None:
    """A module was put into another one."""
    now = monotonic_ns()
    recorder = live()
    if recorder is not None:
        recorder.imported()
        recorder.is_settled = False
    elif _Current.imported_at is None:
        _Current.imported_at = now
    _Session.built = (_Session.built[0] if _Session.built is not None else now, now)


def when_built(function: Callable[[], object]) -> None:
    """Call a function once a model is built."""
    _Session.when_built = function


def take_built() -> tuple[int, int] | None:
    """When the first and the last part of a model was put in place (monotonic ns), if it was; asked once."""
    built, _Session.built = _Session.built, None
    if built is not None and _Session.when_built is not None:
        _Session.when_built()
    return built


def watch_exit() -> None:
    """Keep what the script exits with: at exit the interpreter does not tell any more."""
    if not _Session.is_exit_watched:
        _Session.is_exit_watched = True
        sys.exit = _exit


def exit_code() -> int:
    """What `sys.exit` was given last, 0 where it was not called."""
    return _Session.exit_code


def _exit(status: object = None, /) -> NoReturn:
    _Session.exit_code = status if isinstance(status, int) else int(status is not None)
    raise SystemExit(status)


def failed(hook: str, error: BaseException) -> None:
    """A hook has failed: the agent's log will say so."""
    tell(hook, f"{type(error).__name__}: {error}")


def tell(hook: str, text: str) -> None:
    """Something that the agent's log should say of a hook; the first word of each is kept."""
    if hook in _Session.told:
        return
    _Session.told.add(hook)
    recorder = live()
    if recorder is None:
        _Session.notices.append((hook, text))
    else:
        recorder.notice(hook, text)


def take_notices() -> list[tuple[str, str]]:
    """What was told before there was a recorder; asked once."""
    told, _Session.notices = _Session.notices, []
    return told
