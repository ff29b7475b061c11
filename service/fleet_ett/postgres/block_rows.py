"""The rows of a block, packed for binary COPY a column at a time: byte for byte those of its single events."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fleet_ett.postgres.event_rows import CODES, COLUMNS, OF_STEPS, UNIT_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from fleet_ett.blocks import Block

    Ints = NDArray[np.int64]
    Value = int | Ints | None
    Texts = list[bytes] | bytes | None

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
_WIDTHS = {"int8": 8, "int4": 4, "int2": 2}
_STEP_COLUMNS = dict(
    zip(
        ("first_step", "last_step", "cursor_start", "cursor_end", "data_wait_ns", "slowest_ns", "per_step"),
        OF_STEPS,
        strict=True,
    )
)

_encode = msgspec.json.encode


def digests(block: Block) -> Ints:
    """The digest of each event, as `event_rows.digest` has it."""
    parts: list[tuple[bytes, str | None]] = [(b"[" + _encode(block.type) + b"," + _encode(block.node), None)]
    parts += [(b",", name) for name in ("job", "attempt", "rank", "start", "end")]
    parts += _members(sorted(block.names), b",{")
    parts.append((b"}]", None))
    content = _texts(block, parts)
    rows = [content] * len(block) if isinstance(content, bytes) else content
    joined = b"".join([blake2b(row, digest_size=8).digest() for row in rows])
    return np.frombuffer(joined, dtype=">i8").astype(np.int64)


def ids_of(block: Block, jobs: Mapping[str, int]) -> Ints:
    """The job id of each event."""
    return _mapped(block, lambda job, _: jobs[job])


def pack(
    block: Block, digest: Ints, source_id: int, job_ids: Ints, attempt_id_of: Mapping[tuple[str, str], int]
) -> bytes:
    """The rows as binary COPY takes them, without its signature and trailer; in no particular order."""
    values: dict[str, Value] = dict.fromkeys(COLUMNS)
    values |= {
        "job_id": job_ids,
        "source_id": source_id,
        "seq": block.ints("seq"),
        "start_ns": block.corrected("start"),
        "digest": digest,
        "end_ns": block.corrected("end"),
        "clock_offset_ns": block.clock_offset_ns,
        "attempt_id": _mapped(block, lambda job, attempt: attempt_id_of[job, attempt]),
        "rank": block.ints("rank"),
        "type": CODES[block.type],
    }
    rest = [name for name in block.names if name != "phase"]
    if block.type == "steps":
        values |= {column: block.ints(name) for column, name in _STEP_COLUMNS.items() if name in block.names}
        values["unit"] = UNIT_CODES.get(block.constants.get("unit", ""))
        rest = ["unit"] if "unit" in block.names and values["unit"] is None else []
    phase = _plain(block, "phase") if block.type == "phase" else None
    body = _texts(block, [*_members(rest, b"{"), (b"}", None)]) if rest else None
    return b"".join(
        _packed(values, _chosen(phase, rows), _chosen(body, rows), rows)
        for rows in _alike(len(block), phase, body)
    )


def spans_of(block: Block, starts: Ints) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Each attempt, by job and name, with its first and last stamp (ns)."""
    if "job" not in block.columns and "attempt" not in block.columns:
        yield (block.constants["job"], block.constants["attempt"]), int(starts.min()), int(starts.max())
        return
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    keys = zip(block.values("job"), block.values("attempt"), strict=True)
    for key, stamp in zip(keys, starts.tolist(), strict=True):
        first, last = spans.get(key, (stamp, stamp))
        spans[key] = (min(first, stamp), max(last, stamp))
    for key, (first, last) in spans.items():
        yield key, first, last


def can_pack(block: Block) -> bool:
    """Whether the rows of a block can be packed: not those of several units of steps."""
    return "unit" not in block.columns


def _members(names: list[str], opening: bytes) -> list[tuple[bytes, str | None]]:
    """The members of an object; `opening` stands before the first one."""
    parts: list[tuple[bytes, str | None]] = []
    for name in names:
        parts.append((opening + _encode(name) + b":", name))
        opening = b","
    return parts


def _texts(block: Block, parts: list[tuple[bytes, str | None]]) -> list[bytes] | bytes:
    """Literals and fields as JSON, joined: one text for each event, or one where nothing varies."""
    template, columns = b"", []
    for literal, name in parts:
        template += literal.replace(b"%", b"%%")
        if name in block.numbers:
            template += b"%d"
            columns.append(block.columns[name])
        elif name in block.columns:
            template += b"%b"
            codes = {value: _encode(value) for value in set(block.columns[name])}
            columns.append([codes[value] for value in block.columns[name]])
        elif name is not None:
            template += _encode(block.constants[name]).replace(b"%", b"%%")
    if not columns:
        return template % ()
    return [template % row for row in zip(*columns, strict=True)]


def _plain(block: Block, name: str) -> list[bytes] | bytes:
    if name not in block.columns:
        return str(block.constants[name]).encode()
    codes = {value: value.encode() for value in set(block.columns[name])}
    return [codes[value] for value in block.columns[name]]


def _mapped(block: Block, number: Callable[[str, str], int]) -> Ints:
    if "job" not in block.columns and "attempt" not in block.columns:
        return np.full(len(block), number(block.constants["job"], block.constants["attempt"]), dtype=np.int64)
    pairs = list(zip(block.values("job"), block.values("attempt"), strict=True))
    codes = {pair: number(*pair) for pair in set(pairs)}
    return np.array([codes[pair] for pair in pairs], dtype=np.int64)


def _alike(n: int, *texts: Texts) -> list[Ints]:
    """Row numbers in groups whose texts have equal lengths: such rows have one layout."""
    lengths = [np.array(list(map(len, one)), dtype=np.int64) for one in texts if isinstance(one, list)]
    if not lengths:
        return [np.arange(n)]
    key = lengths[0] if len(lengths) == 1 else lengths[0] << 32 | lengths[1]
    order = np.argsort(key, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(key[order])) + 1)


def _chosen(texts: Texts, rows: Ints) -> Texts:
    return list(map(texts.__getitem__, rows.tolist())) if isinstance(texts, list) else texts


def _packed(values: Mapping[str, Value], phase: Texts, body: Texts, rows: Ints) -> bytes:
    layout: list[tuple[str, str]] = [("fields", ">i2")]
    told: dict[str, Any] = {"fields": len(COLUMNS)}
    for name, kind in COLUMNS.items():
        layout.append((f"{name}:size", ">i4"))
        text = {"phase": phase, "body": body}.get(name)
        value = values[name]
        if text is not None:
            width = len(text if isinstance(text, bytes) else text[0])
            layout.append((name, f"S{width}"))
            told |= {f"{name}:size": width, name: text}
        elif value is not None:
            width = _WIDTHS[kind]
            layout.append((name, f">i{width}"))
            told |= {f"{name}:size": width, name: value[rows] if isinstance(value, np.ndarray) else value}
        else:
            told[f"{name}:size"] = -1
    out = np.empty(len(rows), dtype=layout)
    for name, column in told.items():
        out[name] = column
    return out.tobytes()
