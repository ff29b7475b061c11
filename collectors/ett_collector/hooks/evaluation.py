"""Evaluation: batches that are read while no gradients are kept, until the loader ends or training goes on.

Without it the time would be booked as part of the next step.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ett_collector.hooks.watched import Watched
    from ett_collector.recorder import Opened

PHASE = "evaluation"


class _Evaluation:
    opened: Opened | None = None
    of: int = 0  # the loader's iterator


def begin(recorder: Watched, iterator: object) -> None:
    """A batch is asked for while no gradients are kept."""
    if _Evaluation.opened is None:
        _Evaluation.opened = recorder.begin(PHASE)
        _Evaluation.of = id(iterator)


def end(recorder: Watched, iterator: object | None = None) -> None:
    """Training goes on, or `iterator` has no more batches."""
    opened = _Evaluation.opened
    if opened is not None and (iterator is None or id(iterator) == _Evaluation.of):
        _Evaluation.opened = None
        recorder.finish(opened)
