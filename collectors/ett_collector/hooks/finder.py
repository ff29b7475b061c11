"""A finder that finds nothing itself: it asks the others, and has a function called after the module's execution.

The loader that was found keeps its class and everything else; for one execution it has an `exec_module` of its
own, which is gone before the module sees it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class Finder:
    """Calls `loads` with each of `names` before it is executed, and `loaded` with module and answer afterwards.

    The module is None where its execution has failed. Neither may raise.
    """

    def __init__(
        self, names: set[str], loads: Callable[[str], Any], loaded: Callable[[ModuleType | None, Any], object]
    ) -> None:
        self._names = names
        self._loads = loads
        self._loaded = loaded
        self._asking: set[str] = set()  # another finder may ask all finders in its turn

    def install(self) -> None:
        """Go before all others; what is loaded already is told at once."""
        sys.meta_path.insert(0, self)
        for name in self._names & sys.modules.keys():
            self._loaded(sys.modules[name], None)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders say, for a module that is waited for; else None."""
        if name not in self._names or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = self._ask(name, path, target)
        finally:
            self._asking.discard(name)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _ask(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None
            if find is not None and finder is not self:
                spec = find(name, path, target)
            if spec is not None:
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def execute_and_tell(module: ModuleType) -> None:
            try:  # noqa: SIM105 - contextlib would be imported for this alone
                del loader.exec_module
            except AttributeError:
                pass
            found = self._loads(module.__name__)
            try:
                execute(module)
            except BaseException:
                self._loaded(None, found)
                raise
            self._loaded(module, found)

        try:  # noqa: SIM105
            loader.exec_module = execute_and_tell
        except AttributeError:
            pass  # a loader with slots: this module goes unseen
