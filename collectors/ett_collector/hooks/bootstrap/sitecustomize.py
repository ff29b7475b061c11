"""What `ett-run` puts first on PYTHONPATH: starts the hooks in each Python below it, then goes on as if not here.

The interpreter may be another one than that of `ett-run`, without this package or too old for it: then it is
loaded from where this file is, or nothing happens. A `sitecustomize` that this one hides is run after it.
"""  # noqa: INP001 - found by its name, on a path of its own

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST = 0x030A0000


def activate() -> None:
    """Start the hooks, with this package from beside this file where there is none installed."""
    import importlib.util  # noqa: PLC0415 - for Pythons that are new enough

    package = os.path.dirname(os.path.dirname(HERE))
    if importlib.util.find_spec("ett_collector") is None:
        start = os.path.join(package, "__init__.py")
        spec = importlib.util.spec_from_file_location(
            "ett_collector", start, submodule_search_locations=[package]
        )
        if spec is None or spec.loader is None:
            return
        sys.modules["ett_collector"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    from ett_collector import hooks  # noqa: PLC0415

    hooks.activate()


def go_on() -> None:
    """Run the `sitecustomize` that would have been found without this one."""
    from importlib.machinery import PathFinder  # noqa: PLC0415
    from importlib.util import module_from_spec  # noqa: PLC0415

    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


if sys.hexversion >= OLDEST:
    try:  # noqa: SIM105 - contextlib would be imported for this alone
        activate()
    except Exception:  # noqa: BLE001, S110 - whatever it is, the interpreter starts
        pass
go_on()
