"""Process groups: `init_process_group` and subgroups, and the first collective of a group that connects only then.

NCCL and its kin make a communicator when it is first used, so the first collective of such a group is
`process_group_init` with `lazy` in its attributes: until the second step, then all is connected. What a group of
another kind does first is a collective like any other.
"""

from __future__ import annotations

from functools import partial

from ett_collector.hooks import session, steps
from ett_collector.hooks.around import opened, put
from ett_collector.hooks.watched import TEARDOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ett_collector.hooks.around import Arguments, Found

HOOK = "process_group"
PHASE = "process_group_init"
LAZY_BACKENDS = {"hccl", "nccl", "rccl", "ucc", "xccl"}
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)


class _Used:
    groups: set[int] = set()  # noqa: RUF012


def watch_groups(module: Any) -> None:
    """`torch.distributed.distributed_c10d`."""
    put(module, "init_process_group", HOOK, _init)
    put(module, "new_group", HOOK, lambda _: opened(session.live(), PHASE))
    put(module, "destroy_process_group", HOOK, lambda _: opened(session.live(), TEARDOWN))
    for name in COLLECTIVES:
        if hasattr(module, name):
            put(module, name, HOOK, partial(_first, module, name), is_over=steps.are_usual)


def watch_data_parallel(module: Any) -> None:
    """`torch.distributed.utils`: `DistributedDataParallel` begins by comparing shapes, past the functions above."""
    name = "_verify_param_shape_across_processes"
    put(module, name, HOOK, partial(_first, module.dist, name), is_over=steps.are_usual)


def _init(arguments: Arguments) -> Found | None:
    _, options = arguments
    rank, world = options.get("rank", -1), options.get("world_size", -1)
    said = (rank, world) if rank >= 0 and world > 0 else (None, None)
    return opened(session.act(*said), PHASE)


def _first(distributed: Any, name: str, arguments: Arguments) -> Found | None:
    """A collective, which may be the first one of its group."""
    recorder = session.live()
    if recorder is None:
        return None
    args, options = arguments
    kind = distributed.ProcessGroup
    group = options.get("group") or next(
        (one for one in args if isinstance(one, kind)), distributed.group.WORLD
    )
    backend = str(distributed.get_backend(group))
    if backend not in LAZY_BACKENDS or id(group) in _Used.groups:
        return None
    _Used.groups.add(id(group))
    return opened(recorder, PHASE, attrs={"lazy": True, "backend": backend, "collective": name})
