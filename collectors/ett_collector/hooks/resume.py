"""Which step a loaded state is of, by what it says of itself."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

KEYS = (
    "global_step",
    "step",
    "iteration",
    "iter_num",
)  # of checkpoints: Lightning, torchtitan, Megatron, nanoGPT
IN_PATH = re.compile(r"(?:step|iter|iteration)[-_=]?0*(\d+)", re.IGNORECASE)
MANY = 64  # a mapping with more entries is no account of where the trainer was
LOOKED_AT = 16  # parameters whose state is looked at


class _Loaded:
    told: int | None = None  # by the checkpoint
    counted: int | None = None  # by the optimizer
    is_resumed = False


def step(counted: int | None = None) -> int | None:
    """The last step that the loaded state holds, None where nothing says so. `counted`: by the optimizer itself.

    Its own count goes first, because an entry may be called `step` and count something else. Where the two differ
    by one it is the entry: making an optimizer's state for a distributed checkpoint takes a step.
    """
    counted = _Loaded.counted if counted is None else counted
    told = _Loaded.told
    if counted is None or (told is not None and abs(told - counted) == 1):
        return told
    return counted


def is_resumed() -> bool:
    """Whether the state of an optimizer was loaded."""
    return _Loaded.is_resumed


def loaded_optimizer(state: Mapping[str, Any]) -> int | None:
    """The state of an optimizer is being loaded; the step that is known by now."""
    found = steps_of(state.get("state", {}).values(), waits=True)
    _Loaded.is_resumed = _Loaded.is_resumed or bool(state.get("state"))
    if found:
        _Loaded.counted = found
    return step()


def loaded_checkpoint(content: Mapping[Any, Any], path: object) -> int | None:
    """A checkpoint was loaded; the step that is known by now. Pretrained weights alone are of no step."""
    found = entry(content)
    has_optimizer = any(is_optimizer(one) for one in (content, *content.values()))
    has_optimizer = has_optimizer or any("optim" in str(key).lower() for key in content)
    if found is None and has_optimizer:
        found = number_in(path)
    if found is not None:
        _Loaded.told = found
    _Loaded.is_resumed = _Loaded.is_resumed or has_optimizer or found is not None
    return step()


def loaded_from(path: object) -> int | None:
    """The step of a distributed checkpoint that tells none, by its path."""
    found = number_in(path)
    if found is not None:
        _Loaded.told, _Loaded.is_resumed = found, True
    return step()


def is_optimizer(value: object) -> bool:
    """Whether this is what `Optimizer.state_dict` gives."""
    return isinstance(value, dict) and "param_groups" in value and "state" in value


def is_model(value: object) -> bool:
    """Whether this is what `Module.state_dict` gives."""
    if not isinstance(value, dict) or not value:
        return False
    if hasattr(value, "_metadata"):
        return True
    first = next(iter(value))
    return isinstance(first, str) and first.endswith((".weight", ".bias")) and hasattr(value[first], "shape")


def is_checkpoint(value: object) -> bool:
    """Whether a state of a model or optimizer is in it."""
    if not isinstance(value, dict):
        return False
    return any(is_optimizer(one) or is_model(one) for one in (value, *list(value.values())[:MANY]))


def entry(content: Mapping[Any, Any]) -> int | None:
    """The step by an entry of a checkpoint, at its top or one level below."""
    inner = (one for one in content.values() if isinstance(one, dict) and len(one) <= MANY)
    for where in (content, *(one for one in inner if not is_optimizer(one) and not is_model(one))):
        for key in KEYS:
            found = whole(where.get(key))
            if found is not None:
                return found
    return None


def number_in(path: object) -> int | None:
    """The step in the last two parts of a path."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    found = IN_PATH.findall("/".join(os.fspath(path).replace(os.sep, "/").rstrip("/").split("/")[-2:]))
    return int(found[-1]) if found else None


def steps_of(states: Iterable[Any], *, waits: bool = False) -> int | None:
    """The number of steps that an optimizer has taken, by the state of its parameters; the largest one.

    `waits`: a device may be waited for.
    """
    found = []
    for index, one in enumerate(states):
        if index == LOOKED_AT:
            break
        if isinstance(one, dict) and "step" in one:
            found.append(whole(one["step"], waits=waits))
    return max((one for one in found if one is not None), default=None)


def whole(value: Any, *, waits: bool = False) -> int | None:
    """A number that is whole; of a tensor on a device only where it may be waited for."""
    if isinstance(value, bool) or value is None:
        return None
    device = getattr(value, "device", None)
    if device is not None:
        if value.numel() != 1 or (device.type != "cpu" and not waits):
            return None
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None
