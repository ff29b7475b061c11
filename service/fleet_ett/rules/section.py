"""One mapping of a YAML file, read key by key: a wrong type or a misspelt key is told with its place."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from fleet_ett.errors import Invalid
from fleet_ett.rules.durations import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator


class Section:
    """A mapping at a place such as `clusters.prod-a`; what is absent has a default. All raise `Invalid`."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            msg = f"{where or 'the file'}: keys and values are expected, not {data!r:.60}"
            raise Invalid(msg)
        self._data: dict[str, Any] = data
        self._where = where
        self._known: list[str] = []

    def place(self, key: str) -> str:
        """The key's full name."""
        return f"{self._where}.{key}" if self._where else key

    def text(self, key: str, default: str) -> str:
        """A text of one line."""
        value = self._get(key, default)
        if not isinstance(value, str) or not value.strip() or "\n" in value:
            raise self.wrong(key, "a line of text", value)
        return value.strip()

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number from low to high."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.wrong(key, f"a number from {low:g} to {high:g}", value)
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number from low to high."""
        value = self.number(key, default, low, high)
        if int(value) != value:
            raise self.wrong(key, "a whole number", value)
        return int(value)

    def ratio(self, key: str, default: float) -> float:
        """A percentage above 0 and below 100, as a ratio."""
        value = self.number(key, default * 100, 0, 100)
        if not 0 < value < 100:
            raise self.wrong(key, "a percentage above 0 and below 100", value)
        return round(value / 100, 12)

    def seconds(self, key: str, default: int) -> int:
        """A duration."""
        value = self._get(key, None)
        return default if value is None else seconds(value, self.place(key))

    def section(self, key: str) -> Section:
        """A mapping within; an empty one when absent."""
        return Section(self._get(key, None) or {}, self.place(key))

    def rows(self, key: str) -> list[Section]:
        """A list of mappings within; empty when absent."""
        value = self._get(key, None) or []
        if not isinstance(value, list):
            raise self.wrong(key, "a list", value)
        return [Section(one, f"{self.place(key)}[{place}]") for place, one in enumerate(value)]

    def texts(self, key: str, default: list[str]) -> list[str]:
        """A list of texts."""
        value = self._get(key, None) or default
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(key, "a list of texts", value)
        return value

    def keys(self) -> Iterator[str]:
        """All keys: for a mapping of names."""
        return iter(self._data)

    def done(self) -> None:
        """Refuse keys that nobody asked for: a setting that silently does nothing is worse than none."""
        for key in self._data:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(self._known)}"
                msg = f"{self.place(key)}: unknown; {hint}"
                raise Invalid(msg)

    def wrong(self, key: str, expected: str, value: object) -> Invalid:
        """The error for a value."""
        return Invalid(f"{self.place(key)}: {expected} is expected, not {value!r:.60}")

    def _get(self, key: str, default: Any) -> Any:
        self._known.append(key)
        value = self._data.get(key)
        return default if value is None else value
