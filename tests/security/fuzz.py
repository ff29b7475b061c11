"""atheris on the decoder: `python -m tests.security.fuzz [-max_total_time=S] CORPUS`.

The first byte of an input chooses media type and encoding, the rest is the body; or, from 128 on, the rest says which
fields of a sound body hold what instead, and JSON, msgpack and single rows have to agree on it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["ett_collector", "fleet_ett"]):
    from tests.security.decoder import ENCODINGS, MEDIA, PACKERS, take, take_value
    from tests.security.sound import NAMES, SEEDS, SOUND, places_of

STRUCTURED = 128
NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64, 1_764_399_000_000_000_000)


def one_input(data: bytes) -> None:
    """Take a body as it is and, packed, as what a compressed one holds; or a changed sound one."""
    if not data:
        return
    if data[0] >= STRUCTURED:
        take_value(_changed(atheris.FuzzedDataProvider(data[1:])))
        return
    media, encoding = MEDIA[data[0] % 2], ENCODINGS[data[0] // 2 % len(ENCODINGS)]
    take(data[1:], media, encoding)
    if encoding != "identity":
        take(PACKERS[encoding](data[1:]), media, encoding)


def _changed(provider: Any) -> Any:
    body = json.loads(json.dumps(SOUND))
    for _ in range(provider.ConsumeIntInRange(1, 4)):
        places = places_of(body)
        place = places[provider.ConsumeIntInRange(0, len(places) - 1)]
        place[NAMES[provider.ConsumeIntInRange(0, len(NAMES) - 1)]] = _value(provider, 3)
    return body


def _value(provider: Any, depth: int) -> Any:
    kind = provider.ConsumeIntInRange(0, 9 if depth else 6)
    if kind > 7:
        return [_value(provider, depth - 1) for _ in range(provider.ConsumeIntInRange(0, 3))]
    if kind == 7:
        names = (provider.ConsumeUnicode(4) for _ in range(provider.ConsumeIntInRange(0, 3)))
        return {name: _value(provider, depth - 1) for name in names}
    simple: tuple[Any, ...] = (None, True, False, provider.ConsumeUnicode(8), provider.ConsumeFloat())
    if kind < len(simple):
        return simple[kind]
    return NUMBERS[provider.ConsumeIntInRange(0, 7)] if kind == 5 else provider.ConsumeInt(8)


def _plant(corpus: Path) -> None:
    for number, (media, body) in enumerate(SEEDS):
        for encoding in ENCODINGS:
            first = MEDIA.index(media) + 2 * ENCODINGS.index(encoding)
            (corpus / f"seed-{number}-{encoding}").write_bytes(bytes([first]) + PACKERS[encoding](body))
    (corpus / "seed-structured").write_bytes(bytes(range(128, 256)))


if __name__ == "__main__":
    _plant(Path(sys.argv[-1]))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
