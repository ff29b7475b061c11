"""The recorder that records nothing: before `start`, after a fork, and with `ETT_DISABLE=1`."""

from __future__ import annotations

from ett_collector.spans import DataWait, Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ett_collector.recorder import Recorder


def _nobody() -> Recorder | None:
    return None


class NullRecorder:
    """The methods of `Recorder`, without effect."""

    errors = 0
    dropped = 0

    def step(self, n: int, samples: int | None = None) -> None:
        """Nothing."""

    def step_begin(self, n: int, samples: int | None = None) -> None:
        """Nothing."""

    def phase(self, name: str, **_fields: Any) -> Phase:
        """A span that nobody keeps."""
        return Phase(_nobody, (name, False, None))

    def data_wait(self) -> DataWait:
        """A wait that nobody keeps."""
        return DataWait(_nobody)

    def checkpoint_committed(
        self, step: int, *, samples: int | None = None, mode: str | None = None, size: int | None = None
    ) -> None:
        """Nothing."""

    def checkpoint_loaded(self, step: int, *, samples: int | None = None) -> None:
        """Nothing."""

    def fault(self, kind: str, text: str = "", *, code: int | str | None = None) -> None:
        """Nothing."""

    def span(self, name: str, start: int, end: int, *, anchor: int | None = None) -> None:
        """Nothing."""

    def takes_over(self) -> None:
        """Nothing."""

    def end(
        self, outcome: str = "completed", *, error: str | None = None, exit_code: int | None = None
    ) -> None:
        """Nothing."""
