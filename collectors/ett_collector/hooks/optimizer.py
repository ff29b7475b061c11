"""Optimizer steps: a step of the job is a completed `step` of the optimizer that leads.

The first one to begin a step leads, so of an optimizer that steps others in its turn it is the outer one, and of
two that take turns (a GAN's) the first. Where the leader is gone, or others have stepped for long without it,
the next one leads and the count goes on. Steps that gradients are only added up for, and those that a
`GradScaler` leaves out, are none. Steps are told where they end; the time of what is left out is the next one's.
"""

from __future__ import annotations

from _thread import get_ident
from functools import wraps
from weakref import ref

from ett_collector.hooks import evaluation, resume, session, steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOOK = "optimizer"
IDLE_STEPS = 100  # of others, after which a leader leads no more


def _nothing() -> None:
    """No optimizer."""


class _Lead:
    begins: Any = None  # the handle of what waits for the first one
    leader: Any = staticmethod(_nothing)
    idle = 0
    is_dry = False  # steps that only make an optimizer's state
    dry: Any = staticmethod(_nothing)  # the optimizer whose own count has one of them


def watch_optimizers(module: Any) -> None:
    """`torch.optim.optimizer`."""
    kind = module.Optimizer
    _Lead.begins = module.register_optimizer_step_pre_hook(_begins)
    module.register_optimizer_step_post_hook(_ends)
    make, load = kind.__init__, kind.load_state_dict

    @wraps(make)
    def made(self: Any, *args: Any, **options: Any) -> None:
        try:
            session.act()
        except Exception as error:  # noqa: BLE001 - the hook alone fails
            session.failed(HOOK, error)
        make(self, *args, **options)

    @wraps(load)
    def loaded(self: Any, state_dict: Any, *args: Any, **options: Any) -> Any:
        try:
            _loads(state_dict)
        except Exception as error:  # noqa: BLE001
            session.failed(HOOK, error)
        return load(self, state_dict, *args, **options)

    kind.__init__, kind.load_state_dict = made, loaded


def watch_dry_steps(module: Any) -> None:
    """`torch.distributed.checkpoint.state_dict`: it makes the state of an optimizer by a step that changes nothing."""
    make = module._init_optim_state  # noqa: SLF001

    @wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        _Lead.is_dry = True
        try:
            return make(*args, **options)
        finally:
            _Lead.is_dry = False

    module._init_optim_state = made  # noqa: SLF001


def _loads(state: Any) -> None:
    recorder = session.live()
    _Lead.dry = _nothing
    found = resume.loaded_optimizer(state) if isinstance(state, dict) else None
    if recorder is not None and found:
        recorder.resumed(found)


def _begins(optimizer: Any, _args: object, _options: object) -> None:
    try:
        if _Lead.leader() is None and not _Lead.is_dry:
            _Lead.leader = ref(optimizer)
    except Exception as error:  # noqa: BLE001
        session.failed(HOOK, error)


def _ends(optimizer: Any, _args: object, _options: object) -> None:
    try:
        if _Lead.is_dry:
            _Lead.dry = ref(optimizer)
            return
        if _Lead.leader() is not optimizer:
            _Lead.idle += 1
            if _Lead.leader() is not None and _Lead.idle < IDLE_STEPS:
                return
            _Lead.leader = ref(optimizer)
        if _Lead.begins is not None:
            _Lead.begins.remove()
            _Lead.begins = None
        _Lead.idle = 0
        recorder = session.live()
        if recorder is None:
            recorder = session.act()
            if recorder is None:
                return
        recorder.thread = get_ident()
        evaluation.end(recorder)
        steps.complete(recorder, optimizer, dry=int(_Lead.dry() is optimizer))
    except Exception as error:  # noqa: BLE001
        session.failed(HOOK, error)
