"""Model build: from the first module that is put into another one to the last before the trainer goes on.

The first one also ends `process_import`. After that nothing is watched any more.
"""

from __future__ import annotations

from ett_collector.hooks import session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Watching:
    handle: Any = None


def watch_registrations(module: Any) -> None:
    """`torch.nn.modules.module`."""
    _Watching.handle = module.register_module_module_registration_hook(_registered)
    session.when_built(_stop)


def _stop() -> None:
    handle, _Watching.handle = _Watching.handle, None
    if handle is not None:
        handle.remove()


def _registered(_module: object, _name: str, _part: object) -> None:
    try:
        session.part_of_model()
    except Exception as error:  # noqa: BLE001 - the hook alone fails
        session.failed("model_build", error)
