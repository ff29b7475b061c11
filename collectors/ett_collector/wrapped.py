"""A phase as a decorator: a span for each call, and for a generator one for each piece of work that it does."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from ett_collector.spans import Phase

Function = TypeVar("Function", bound="Callable[..., Any]")
GENERATOR, COROUTINE, ASYNC_GENERATOR = 0x20, 0x80, 0x200  # of `co_flags`


def wrapped(phase: Phase, function: Function) -> Function:
    """The function with each of its calls in a phase of its own."""
    code = getattr(function, "__code__", None)
    flags = code.co_flags if code is not None else 0
    if flags & COROUTINE:

        @functools.wraps(function)
        async def called(*args: object, **options: object) -> object:
            with phase.again():
                return await function(*args, **options)

    elif flags & GENERATOR:

        @functools.wraps(function)
        def called(*args: object, **options: object) -> object:
            return _stepwise(phase, function(*args, **options))

    elif flags & ASYNC_GENERATOR:

        @functools.wraps(function)
        def called(*args: object, **options: object) -> object:
            return _stepwise_async(phase, function(*args, **options))

    else:

        @functools.wraps(function)
        def called(*args: object, **options: object) -> object:
            with phase.again():
                return function(*args, **options)

    return cast("Function", called)


def _stepwise(phase: Phase, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The generator with a span around each of its steps: what its caller does in between is not its work."""
    resume: Callable[[], Any] = functools.partial(next, inner)
    try:
        while True:
            try:
                with phase.again():
                    item = resume()
            except StopIteration as done:
                return done.value
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in by the caller: the inner one may want it
                resume = functools.partial(inner.throw, error)
            else:
                resume = functools.partial(inner.send, sent)
    finally:
        inner.close()


async def _stepwise_async(phase: Phase, inner: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    resume: Callable[[], Any] = inner.__anext__
    try:
        while True:
            try:
                with phase.again():
                    item = await resume()
            except StopAsyncIteration:
                return
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001
                resume = functools.partial(inner.athrow, error)
            else:
                resume = functools.partial(inner.asend, sent)
    finally:
        await inner.aclose()
