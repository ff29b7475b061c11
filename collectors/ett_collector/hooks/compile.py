"""torch.compile: what Dynamo's own callbacks say of each compilation, and the keys of the graphs that it looked up.

Before the first step a compilation is `compile_cold`, or `compile_cache_restore` where all that was looked up was
found; later it is `recompile_in_loop`. The `work_key` is the cache's own key of the graph (AOTAutograd's, else those
of the FX graphs), the same in every process that compiles the same graph: what a shared cache would have saved.
Autotuning has a phase of its own where Dynamo tells of it.
"""

from __future__ import annotations

import sys
from functools import wraps

from ett_collector.hooks import session, steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ett_collector.recorder import Opened

HOOK = "compile"
COLD, RESTORE, AGAIN, AUTOTUNE = (
    "compile_cold",
    "compile_cache_restore",
    "recompile_in_loop",
    "kernel_autotune",
)
MANY = 16  # keys of one compilation that are put together


class _Compiling:
    opened: Opened | None = None
    name = COLD
    before: tuple[int, int] = (0, 0)
    aot_keys: list[str] = []  # noqa: RUF012
    fx_keys: list[str] = []  # noqa: RUF012


def watch_compiles(module: Any) -> None:
    """`torch._dynamo.callback`. `torch._dynamo.reset` forgets all callbacks: they are given again."""
    handler = module.callback_handler
    clear = handler.clear

    @wraps(clear)
    def cleared() -> None:
        clear()
        _register(handler)

    _register(handler)
    handler.clear = cleared


def watch_graphs(module: Any) -> None:
    """`torch._inductor.codecache`: the key of each FX graph that is looked up."""
    cache = module.FxGraphCache
    load = cache.load_with_key

    @wraps(load)
    def loaded(key: str, *args: Any, **options: Any) -> Any:
        if _Compiling.opened is not None:
            _Compiling.fx_keys.append(key)
        return load(key, *args, **options)

    cache.load_with_key = staticmethod(loaded)


def watch_keys(module: Any) -> None:
    """`torch._functorch._aot_autograd.autograd_cache`: the key of each joint graph."""
    make = module.autograd_cache_key

    @wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        found = make(*args, **options)
        try:
            if _Compiling.opened is not None:
                _Compiling.aot_keys.append(str(found[0]))
        except Exception as error:  # noqa: BLE001 - the hook alone fails
            session.failed(HOOK, error)
        return found

    module.autograd_cache_key = made


def _register(handler: Any) -> None:
    handler.register_start_callback(_begins)
    handler.register_end_callback(_ends)


def _begins(*told: Any) -> None:
    try:
        recorder = session.live()
        _Compiling.opened = None
        if recorder is not None:
            trigger = _trigger(told)
            autotunes = trigger == "TRITON_AUTOTUNING"
            _Compiling.name = AUTOTUNE if autotunes else AGAIN if steps.have_begun() else COLD
            _Compiling.before, _Compiling.aot_keys, _Compiling.fx_keys = _counted(), [], []
            _Compiling.opened = recorder.begin(_Compiling.name, anywhere=True)
    except Exception as error:  # noqa: BLE001 - the hook alone fails
        session.failed(HOOK, error)


def _ends(*told: Any) -> None:
    try:
        recorder, opened = session.live(), _Compiling.opened
        _Compiling.opened = None
        if recorder is None or opened is None:
            return
        hits, misses = (now - then for now, then in zip(_counted(), _Compiling.before, strict=True))
        name = RESTORE if _Compiling.name == COLD and hits > 0 and misses <= 0 else _Compiling.name
        said = {
            "compile_id": str(getattr(told[0], "compile_id", "")) if told else "",
            "trigger": _trigger(told),
        }
        attrs = {**said, "cache_hits": max(0, hits), "cache_misses": max(0, misses)}
        recorder.finish(opened, known=(name, _work_key()), attrs=attrs)
    except Exception as error:  # noqa: BLE001
        session.failed(HOOK, error)


def _trigger(told: tuple[Any, ...]) -> str:
    return str(getattr(getattr(told[0] if told else None, "callback_trigger", None), "name", ""))


def _counted() -> tuple[int, int]:
    """(found, not found) of all that was looked up so far, by the counters of Dynamo."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0, 0
    graphs, joint = utils.counters["inductor"], utils.counters["aot_autograd"]
    hits = graphs["fxgraph_cache_hit"] + joint["autograd_cache_hit"]
    return hits, graphs["fxgraph_cache_miss"] + graphs["fxgraph_cache_bypass"] + joint["autograd_cache_miss"]


def _work_key() -> str | None:
    """One key for all graphs of a compilation."""
    keys = sorted(set(_Compiling.aot_keys or _Compiling.fx_keys))
    if len(keys) <= 1:
        return f"pt2:{keys[0]}" if keys else None
    from hashlib import sha256  # noqa: PLC0415

    return f"pt2:{sha256(' '.join(keys[:MANY]).encode()).hexdigest()}"
