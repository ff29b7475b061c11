"""Phases around functions, coroutines and generators: each call has spans of its own, and behaves as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.collectors.test_recorder import kinds, run

if TYPE_CHECKING:
    from tests.collectors.conftest import Bench


def spans(records: list[dict[str, Any]], name: str = "work") -> list[int]:
    """How long each span of a name was, in ms."""
    return [(r["end"] - r["start"]) // 1_000_000 for r in records if r["t"] == "phase" and r["phase"] == name]


def test_function_and_recursion(bench: Bench) -> None:
    """A span for each call, one inside the other; name, docstring and result are the function's own."""
    records = run(
        bench,
        """
@ett.phase("work", work_key="k")  # before start
def count(n):
    "Doc."
    return 1 + count(n - 1) if n else 0
ett.start("j")
assert (count(3), count.__name__, count.__doc__) == (3, "count", "Doc.")
""",
    )
    ends = [r for r in records if r["t"] == "phase" and r["phase"] == "work"]

    assert (4, 4, {"k"}) == (len(ends), len({r["span"] for r in ends}), {r["work_key"] for r in ends})
    assert [r["start"] for r in ends] == sorted((r["start"] for r in ends), reverse=True)


def test_one_object_entered_again_and_again(bench: Bench) -> None:
    """Kept in a variable, nested and in a loop."""
    records = run(
        bench,
        "ett.start('j')\nwork = ett.phase('work')\nfor _ in range(3):\n with work:\n  with work: pass",
    )

    assert 6 == len(spans(records))


def test_coroutine(bench: Bench) -> None:
    """From its first step to its last, also where several run at once."""
    records = run(
        bench,
        """
import asyncio
@ett.phase("work", overlapped=True)
async def save(): await asyncio.sleep(0.02); return 5
async def main(): return await asyncio.gather(save(), save())
ett.start("j")
assert asyncio.run(main()) == [5, 5]
""",
    )

    assert 2 == len(spans(records))
    assert all(length >= 20 for length in spans(records))


def test_generator_is_timed_while_it_works(bench: Bench) -> None:
    """What its caller does between two items is not its work; sent values, errors and results pass through."""
    records = run(
        bench,
        """
@ett.phase("work")
def load():
    got = yield 1
    try: yield got
    except KeyError: yield "caught"
    return "done"
ett.start("j")
def whole():
    items = load()
    seen = [next(items)]; ett.step(1)
    seen.append(items.send(2)); ett.step(2)
    seen.append(items.throw(KeyError("x"))); ett.step(3)
    try: next(items)
    except StopIteration as stop: seen.append(stop.value)
    return seen
assert whole() == [1, 2, "caught", "done"]
closed = []
@ett.phase("other")
def held():
    try: yield 1
    finally: closed.append(True)
items = held(); next(items); items.close()
assert closed
""",
    )

    assert [*["open", "phase", "step"] * 3, "open", "phase"] == kinds(records)[:11]
    assert 4 == len(spans(records))
    assert 1 == len(spans(records, "other"))


def test_asynchronous_generator(bench: Bench) -> None:
    """The same, with awaits."""
    records = run(
        bench,
        """
import asyncio
closed = []
@ett.phase("work")
async def load():
    try:
        for n in range(3): await asyncio.sleep(0); yield n
    finally: closed.append(True)
async def main():
    seen = []
    async for n in load(): seen.append(n); ett.step(n); await asyncio.sleep(0)
    items = load(); await items.__anext__(); await items.aclose()
    return seen
ett.start("j")
assert (asyncio.run(main()), closed) == ([0, 1, 2], [True, True])
""",
    )

    # three items, the end, and one item of the other
    assert [*["open", "phase", "step"] * 3, *["open", "phase"] * 2] == kinds(records)[:13]
    assert 5 == len(spans(records))
