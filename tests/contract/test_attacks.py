"""What a client can do to a server without meaning well, and what must not come of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from kime_grpc.server.in_flight import InFlight
from kime_grpc.server.interceptors import CallInterceptor
from tests.contract.wire import DECIDE, DECIDE_STREAM


class GoneContext:
    """The context of a call whose client has left: whatever is sent fails, as the library says it."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def add_done_callback(self, _: Any) -> None:
        pass

    async def fail(self, *_: Any) -> None:
        raise grpc.aio.InternalError("the transport is gone")

    send_initial_metadata = write = abort = read = fail


class Details:
    """A call, as the library tells an interceptor of it."""

    invocation_metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


async def wrapped(handler: Any, method: str) -> Any:
    async def found(_: Any) -> Any:
        return handler

    interceptor = CallInterceptor(InFlight(), 1024)
    return await interceptor.intercept_service(found, Details(method))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [None, ValueError("bad")])
async def test_a_client_that_leaves_before_its_answer_ends_the_call_as_a_cancelled_one(
    error: Exception | None,
) -> None:
    async def serve(*_: Any) -> str:
        if error is not None:
            raise error
        return "answer"

    handler: Any = await wrapped(grpc.unary_unary_rpc_method_handler(serve, bytes), DECIDE)
    # Any other exception would be in the log as the server's own, with a traceback.
    with pytest.raises(asyncio.CancelledError):
        await handler.unary_unary(b"", GoneContext())


@pytest.mark.parametrize("answers", [0, 1])
async def test_a_client_that_leaves_a_stream_ends_it_as_a_cancelled_one(answers: int) -> None:
    async def serve(*_: Any) -> AsyncIterator[str]:
        for _ in range(answers):
            yield "answer"

    handler: Any = await wrapped(grpc.stream_stream_rpc_method_handler(serve, bytes), DECIDE_STREAM)
    with pytest.raises(asyncio.CancelledError):
        await handler.stream_stream(None, GoneContext())
