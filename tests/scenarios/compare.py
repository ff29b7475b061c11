"""Whether a document holds what is expected of it, and where it does not.

Objects are compared on the keys that are expected, a missing amount counting as 0. Of a list each expected
item must be found, in order; an empty list means an empty list.
"""

from __future__ import annotations

from typing import Any


def differences(expected: Any, actual: Any, where: str = "") -> list[str]:
    """One line for each place where `actual` does not hold what is `expected`."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return [f"{where}: expected an object, got {actual!r}"]
        return [
            line
            for key, value in expected.items()
            for line in differences(value, actual.get(key, 0 if value == 0 else None), f"{where}/{key}")
        ]
    if isinstance(expected, list):
        return _list_differences(expected, actual, where)
    if isinstance(expected, float) and isinstance(actual, int | float):
        return [] if abs(expected - actual) < 1e-9 else [f"{where}: expected {expected!r}, got {actual!r}"]
    if expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        return [f"{where}: expected {expected!r}, got {actual!r}"]
    return []


def _list_differences(expected: list[Any], actual: Any, where: str) -> list[str]:
    if not isinstance(actual, list):
        return [f"{where}: expected a list, got {actual!r}"]
    if not expected:
        return [f"{where}: expected nothing, got {actual!r}"] if actual else []
    rest = list(actual)
    for index, item in enumerate(expected):
        while rest and differences(item, rest[0]):
            rest.pop(0)
        if not rest:
            return [f"{where}/{index}: {item!r} not found (in this order) in {actual!r}"]
        rest.pop(0)
    return []


def restricted(actual: Any, expected: Any) -> Any:
    """`actual` cut down to the keys that `expected` has: what `--accept` writes."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return {key: restricted(actual.get(key, 0), value) for key, value in expected.items()}
    if isinstance(expected, list) and isinstance(actual, list) and expected:
        shapes = expected if len(expected) == len(actual) else [expected[0]] * len(actual)
        return [restricted(one, shape) for one, shape in zip(actual, shapes, strict=True)]
    return actual


def unbalanced(document: dict[str, Any]) -> list[str]:
    """The jobs whose headings do not add up to their wall time, or whose GPU headings to their GPU time."""
    return [
        f"{job}: {name} is not the sum of {headings}"
        for job, books in document["jobs"].items()
        for name, headings in (("wall_ns", "headings"), ("gpu_ns", "gpu_headings"))
        if sum(books[headings].values()) != books[name] or min(books[headings].values()) < 0
    ]
