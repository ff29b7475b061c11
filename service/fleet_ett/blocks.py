"""Bulk batches of `phase` and `steps` events checked a column at a time.

A block is what all rows of a batch become when every value passes at once. Where one does not, or the batch
holds anything rare, there is no block, and each event is checked by itself, with its own reason. Both ways lead
to the same events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ett_collector.wire import DAY_NS, INT_END, MAX_NAME, MAX_RANK, YEAR_2000_NS, Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Names = str | list[str]

FEWEST = 8  # rows alike for which columns pay
MOST_OFFSET_NS = 2**62
_NEEDED = {
    "phase": ("job", "attempt", "rank", "phase", "start", "end", "seq"),
    "steps": ("job", "attempt", "rank", "first", "last", "start", "end", "seq"),
}
_ENVELOPE = frozenset({"type", "node", "incarnation", "job", "attempt", "rank", "start", "end", "seq"})
_CONSTANT = frozenset({"type", "node", "incarnation"})  # where they vary, events are checked singly
_MOSTLY_ONE = frozenset({"job", "attempt", "unit"})
_NAMES = frozenset({"job", "attempt", "phase", "work_key", "span", "unit", "incarnation", "node"})
_FLAGS = frozenset({"overlapped", "aborted"})
# Numbers: name -> (lowest, first beyond).
_RANGES = {
    "seq": (0, INT_END),
    "start": (0, INT_END),
    "end": (0, INT_END),
    "rank": (0, MAX_RANK),
    "first": (0, INT_END),
    "last": (0, INT_END),
    "cursor_start": (0, INT_END),
    "cursor_end": (0, INT_END),
    "data_wait": (0, INT_END),
    "slowest": (0, INT_END),
    "per_optimizer_step": (1, 2**31),
    "step": (0, INT_END),
}
_BODY = {
    "phase": frozenset({"phase", "work_key", "overlapped", "aborted", "step", "span"}),
    "steps": frozenset(_RANGES.keys() - {"step"} - _ENVELOPE) | {"unit"},
}


@dataclass(frozen=True, slots=True)
class Block:
    """Checked events of one type. `constants` hold for all; `columns` are lists of one length.

    `numbers`: the integer columns as int64. `names`: of the fields of the body, in the sender's order. Stamps in
    ns, as the node's clock said them. `positions`: where in the body each event stood.
    """

    type: str
    node: str
    incarnation: str
    clock_offset_ns: int
    constants: dict[str, Any]
    columns: dict[str, list[Any]]
    numbers: dict[str, Ints]
    names: tuple[str, ...]
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.columns["seq"])

    def values(self, name: str) -> list[Any]:
        """The values of a field, one for each event."""
        column = self.columns.get(name)
        return [self.constants[name]] * len(self) if column is None else column

    def ints(self, name: str) -> Ints:
        """The values of a number, one for each event."""
        column = self.numbers.get(name)
        return np.full(len(self), self.constants[name], dtype=np.int64) if column is None else column

    def corrected(self, name: str) -> Ints:
        """The stamps with the clock offset taken off."""
        return self.ints(name) - self.clock_offset_ns

    def events(self) -> Iterator[Event]:
        """The same as single events."""
        told = [self.values(name) for name in ("seq", "job", "attempt", "rank", "start", "end")]
        bodies = zip(*map(self.values, self.names), strict=True)
        for (seq, job, attempt, rank, start, end), body in zip(zip(*told, strict=True), bodies, strict=True):
            yield Event(
                self.type,
                self.node,
                self.incarnation,
                seq,
                self.clock_offset_ns,
                job,
                attempt,
                rank,
                start,
                end,
                dict(zip(self.names, body, strict=True)),
            )


def alike(rows: list[object]) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Rows of one type and the same fields as bulk batches, each with where its rows stood."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, row in enumerate(rows):
        if type(row) is dict:
            kind = row.get("type")
            if type(kind) is str and kind in _NEEDED:
                groups.setdefault((kind, *row), []).append(at)
    for (kind, *_), places in groups.items():
        if len(places) < FEWEST:
            continue
        chosen: list[Any] = [rows[at] for at in places]
        batch: dict[str, Any] = {"type": kind}
        columns: dict[str, list[Any]] = {}
        for name in chosen[0]:
            column = [row[name] for row in chosen]
            first = column[0]
            if name in _MOSTLY_ONE and type(first) is str and column.count(first) == len(column):
                batch[name] = first
            elif name != "type":
                columns[name] = column
        yield {**batch, "columns": columns}, places


def block_of(
    batch: object,
    *,
    node: str,
    incarnation: str,
    clock_offset_ns: int,
    now: int | None,
    positions: Sequence[int],
) -> Block | None:
    """The block of a bulk batch, whose events stand at `positions`; None where events are checked singly."""
    if type(batch) is not dict or type(batch.get("columns")) is not dict:
        return None
    columns: dict[str, Any] = batch["columns"]
    constants = {name: value for name, value in batch.items() if name != "columns" and name not in columns}
    if not _has_form(constants, columns) or constants.get("node", node) != node:
        return None
    if not -MOST_OFFSET_NS <= clock_offset_ns < MOST_OFFSET_NS:
        return None
    numbers: dict[str, Ints] = {}
    passed = all(_passes(name, [value]) is not None for name, value in constants.items() if name != "type")
    for name, column in columns.items():
        checked = _passes(name, column) if passed else None
        passed = checked is not None
        if checked is not None and name in _RANGES:
            numbers[name] = checked
    if not passed:
        return None
    kind = constants["type"]
    block = Block(
        kind,
        node,
        constants.get("incarnation", incarnation),
        clock_offset_ns,
        constants,
        columns,
        numbers,
        tuple(dict.fromkeys(name for name in (*batch, *columns) if name in _BODY[kind])),
        positions,
    )
    return block if _consistent(block, now) else None


def _has_form(constants: dict[Any, Any], columns: dict[Any, Any]) -> bool:
    """Whether the fields are those of a block, whatever they hold."""
    kind = constants.get("type")
    if type(kind) is not str or kind not in _NEEDED or "seq" not in columns:
        return False
    if not _CONSTANT.isdisjoint(columns):
        return False
    sizes = {len(column) if type(column) is list else 0 for column in columns.values()}
    told = constants.keys() | columns.keys()
    known = all(name in _ENVELOPE or name in _BODY[kind] for name in told)
    return known and told.issuperset(_NEEDED[kind]) and len(sizes) == 1 and 0 not in sizes


_NO_NUMBERS = np.empty(0, dtype=np.int64)


def _passes(name: str, values: list[Any]) -> Ints | None:
    """The numbers of a column that passes as a whole (none for names and flags); None where it does not."""
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if name in _FLAGS:
        return _NO_NUMBERS if kind is bool else None
    if name in _NAMES:
        return _NO_NUMBERS if kind is str and all(map(_is_name, set(values))) else None
    if kind is not int:
        return None
    low, end = _RANGES[name]
    try:
        numbers = np.array(values, dtype=np.int64)
    except OverflowError:
        return None
    return numbers if low <= int(numbers.min()) and int(numbers.max()) < end else None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME and "\0" not in text and (text.isascii() or _can_be_encoded(text))


def _can_be_encoded(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _consistent(block: Block, now: int | None) -> bool:
    start, end, offset = block.ints("start"), block.ints("end"), block.clock_offset_ns
    low, high = int(min(start.min(), end.min())) - offset, int(max(start.max(), end.max())) - offset
    if low < YEAR_2000_NS or high >= INT_END or (now is not None and high > now + DAY_NS):
        return False
    if (end < start).any():
        return False
    if block.type == "steps":
        if (block.ints("last") < block.ints("first")).any():
            return False
        if "cursor_end" in block.names and "cursor_start" in block.names:
            return not (block.ints("cursor_end") < block.ints("cursor_start")).any()
    return True
