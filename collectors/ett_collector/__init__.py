"""Tell where a training job's time goes: `import ett_collector as ett`.

    ett.start()                              # job, attempt and rank from the environment
    with ett.phase("checkpoint_load"):
        step = load()
    for step, batch in batches(step):
        train(batch)
        ett.step(step)                       # step `step` is complete
    ett.end()

Importing starts nothing and needs nothing but the standard library. No function here raises into the
trainer, blocks it, or talks to a network: facts go to a spool file, which `ett-agent` ships.
"""

from __future__ import annotations

from ett_collector.current import _Current, current, data_wait, phase, start

__all__ = [
    "checkpoint_committed",
    "checkpoint_loaded",
    "current",
    "data_wait",
    "end",
    "fault",
    "phase",
    "start",
    "step",
    "step_begin",
]


def step(n: int, samples: int | None = None) -> None:
    """Step `n` of the job is complete. `samples`: consumed by the whole job so far, this step included.

    A step runs from the mark before it to this one. The first one runs from `step_begin`, else from the end
    of the last phase before it; where neither was said it has no length, and the time before is unreported.
    """
    _Current.recorder.step(n, samples)


def step_begin(n: int, samples: int | None = None) -> None:
    """Step `n` begins (optional): should the process die before its mark, the books show it as cut off.

    `samples`: consumed by the whole job before this step (needed once where nothing was loaded, usually 0).
    """
    _Current.recorder.step_begin(n, samples)


def checkpoint_committed(
    step: int, *, samples: int | None = None, mode: str | None = None, size: int | None = None
) -> None:
    """A checkpoint with `step` as its last complete step is durable from now on (`size` in bytes)."""
    _Current.recorder.checkpoint_committed(step, samples=samples, mode=mode, size=size)


def checkpoint_loaded(step: int, *, samples: int | None = None) -> None:
    """The state after `step` was loaded: the next step is `step + 1`."""
    _Current.recorder.checkpoint_loaded(step, samples=samples)


def fault(kind: str, text: str = "", *, code: int | str | None = None) -> None:
    """Something went wrong (xid, ecc, oom, nccl, link, filesystem, exception, preemption ...)."""
    _Current.recorder.fault(kind, text, code=code)


def end(outcome: str = "completed", *, error: str | None = None, exit_code: int | None = None) -> None:
    """This rank's attempt is over: completed, failed, cancelled, preempted or resized."""
    _Current.recorder.end(outcome, error=error, exit_code=exit_code)
