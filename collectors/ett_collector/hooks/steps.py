"""Which step of the job an optimizer's step is: counted from what was loaded.

The count begins after the step that the loaded state tells: by the optimizer's own `step` (Adam and its kin),
else by what the trainer says (`ett.checkpoint_loaded`), else by an entry of the loaded checkpoint or a number in its
path that says `step` or `iter` (`resume.py`). Where something was loaded into the optimizer and nothing tells its
step, no step is counted: the time stays `unknown`, which is better than booked as what it may not be, and
the agent's log says so. Where nothing was loaded the job begins at step 1.
"""

from __future__ import annotations

from ett_collector.hooks import resume, session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ett_collector.hooks.watched import Watched

USUAL_FROM = 2  # steps of this process after which everything has been done once


class _Steps:
    last: int | None = None  # the newest complete step
    done = 0  # steps of this process
    lost = False  # nobody knows which step it is


def are_usual() -> bool:
    """Whether the first steps are over."""
    return _Steps.done >= USUAL_FROM


def have_begun() -> bool:
    """Whether a step is complete."""
    return _Steps.done > 0


def last() -> int | None:
    """The newest complete step of the job, None where it is not known."""
    recorder = session.live()
    return recorder.newest if recorder is not None and recorder.says_steps else _Steps.last


def expected(recorder: Watched) -> int | None:
    """The number of the first step, as far as is known before it is done."""
    before = recorder.loaded if recorder.loaded is not None else resume.step()
    if before is None:
        return None if resume.is_resumed() else 1
    return before + 1


def complete(recorder: Watched, optimizer: Any, dry: int = 0) -> None:
    """A step of the leading optimizer is complete. `dry`: steps in its own count that were none."""
    _Steps.done += 1
    if recorder.says_steps or _Steps.lost:
        return
    if _Steps.last is not None:
        _Steps.last += 1
        recorder.count(_Steps.last)
        return
    counted = resume.steps_of(optimizer.state.values()) if recorder.loaded is None else None
    before = None if counted is None else resume.step(max(0, counted - 1 - dry))
    if before:
        recorder.resumed(before)
    _Steps.last = expected(recorder) if before is None else before + 1
    if _Steps.last is None:
        _Steps.lost = True
        session.tell("steps", "which step was loaded is not known, so none is counted: call ett.step(n)")
        return
    recorder.count_first(_Steps.last)
