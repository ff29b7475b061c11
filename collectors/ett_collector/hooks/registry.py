"""The hooks as rows: which module each waits for, and the function that is given it.

`ETT_AUTO_WITHOUT=compile,dataloader` leaves hooks out by name.
"""

from __future__ import annotations

import os
import sys

from ett_collector.hooks import session
from ett_collector.hooks.around import opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from ett_collector.hooks.around import Found

_HERE = "ett_collector.hooks"
# module -> (hook, which is the name of its file, function)
HOOKS: dict[str, tuple[str, str]] = {
    "torch.nn.modules.module": ("model_build", "watch_registrations"),
    "torch.distributed.distributed_c10d": ("process_group", "watch_groups"),
    "torch.distributed.utils": ("process_group", "watch_data_parallel"),
    "torch._dynamo.trace_rules": ("untraced", "leave_out"),
    "torch._dynamo.callback": ("compile", "watch_compiles"),
    "torch._inductor.codecache": ("compile", "watch_graphs"),
    "torch._functorch._aot_autograd.autograd_cache": ("compile", "watch_keys"),
    "torch.distributed.checkpoint.state_dict_saver": ("checkpoint", "watch_saves"),
    "torch.distributed.checkpoint.state_dict_loader": ("checkpoint", "watch_loads"),
    "torch.distributed.checkpoint.state_dict": ("optimizer", "watch_dry_steps"),
    "torch.serialization": ("serialization", "watch_files"),
    "torch.utils.data.dataloader": ("dataloader", "watch_loaders"),
    "torch.optim.optimizer": ("optimizer", "watch_optimizers"),
}


# what an optimizer and torch.compile import when they are first used, for seconds
LATE = {"torch._dynamo", "torch._dynamo.repro.after_dynamo", "torch._inductor.compile_fx"}


def wanted() -> set[str]:
    """The modules that have a hook."""
    without = os.environ.get("ETT_AUTO_WITHOUT", "").replace(",", " ").split()
    return LATE | {module for module, (hook, _) in HOOKS.items() if hook not in without}


def loads(name: str) -> Found | None:
    """A module is about to be executed. Never raises."""
    try:
        recorder = session.live() if name in LATE else None
        if recorder is not None and not recorder.is_inside():
            return opened(recorder, "process_import")
    except Exception as error:  # noqa: BLE001 - the hook alone fails
        session.failed("process_start", error)
    return None


def loaded(module: ModuleType | None, found: Found | None) -> None:
    """It was executed, None if in vain: apply its hook. Never raises."""
    if found is not None:
        found[0].finish(found[1])
    if module is not None and module.__name__ in HOOKS:
        apply(module, *HOOKS[module.__name__])


def apply(module: ModuleType, hook: str, function: str) -> None:
    """Apply one hook. Never raises."""
    try:
        name = f"{_HERE}.{hook}"
        __import__(name)
        getattr(sys.modules[name], function)(module)
    except AttributeError as error:  # whose text, this early, would speak of a circular import
        session.tell(hook, f"{module.__name__} has no {error.name}: another version?")
    except Exception as error:  # noqa: BLE001 - the hook alone fails
        session.failed(hook, error)
