"""What surrounds every call to our services: its id, its bytes, its count, and how its errors end it.

Bytes are parsed here and not by the library, whose own statuses for bad ones say nothing. An error is sent in
trailers alone, and so is the id of a unary call: once a client has seen headers, it never tries again, not
even if this process dies before the answer. A stream's headers go out with its first answer.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import ServerInterceptor, ServicerContext

from kime_grpc.core.errors import KimeError, MalformedError, TooLargeError
from kime_grpc.server.bounds import Bounds
from kime_grpc.server.call import is_own_cancellation
from kime_grpc.server.in_flight import InFlight
from kime_grpc.server.status import error_status
from kime_grpc.server.stream import Received

REQUEST_ID_KEY = "x-request-id"
ATTEMPTS_KEY = "grpc-previous-rpc-attempts"
PUSHBACK_KEY = "grpc-retry-pushback-ms"
DETAILS_KEY = "grpc-status-details-bin"
OUR_METHODS = "/kime.v1."

request_id: ContextVar[str] = ContextVar("request_id")
"""The id of the call that the current task serves."""

_WELL_FORMED_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_CODES = {code.value[0]: code for code in grpc.StatusCode}

if TYPE_CHECKING:
    # Generic in the stubs alone.
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
Context: TypeAlias = ServicerContext[Any, Any]
Parse: TypeAlias = Callable[[bytes], Any]


class CallInterceptor(ServerInterceptor):
    """Wraps the methods of our services; health and reflection pass untouched."""

    def __init__(self, in_flight: InFlight, bounds: Bounds, max_message_bytes: int) -> None:
        """Count calls in `in_flight` and within `bounds`; take messages of up to `max_message_bytes`."""
        self._in_flight = in_flight
        self._bounds = bounds
        self._max_message_bytes = max_message_bytes

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler, in our wrapping if it is one of ours."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(OUR_METHODS):
            return handler
        ours: Any = handler
        # Without a deserializer the library hands the bytes through.
        if ours.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._stream(ours.stream_stream, ours.request_deserializer),
                response_serializer=ours.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(ours.unary_unary, ours.request_deserializer),
            response_serializer=ours.response_serializer,
        )

    def _unary(
        self, serve: Callable[[Any, Context], Awaitable[Any]], parse: Parse
    ) -> Callable[[bytes, Context], Awaitable[Any]]:
        async def served(raw: bytes, context: Context) -> Any:
            call_id = _name(context)
            try:
                async with self._in_flight.serving(context, self._bounds.calls, attempt(context)):
                    self._check_size(len(raw))
                    timeout = context.time_remaining()
                    with self._bounds.bytes.taking(len(raw), timeout=timeout, attempt=attempt(context)):
                        answer = await serve(_parsed(raw, parse), context)
            except (Exception, asyncio.CancelledError) as error:
                if is_own_cancellation(error):
                    raise
                await _abort(context, error, call_id)
            context.set_trailing_metadata(((REQUEST_ID_KEY, call_id),))
            return answer

        return served

    def _stream(
        self, serve: Callable[[AsyncIterator[Any], Context], Any], parse: Parse
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
        async def served(_: AsyncIterator[bytes], context: Context) -> None:
            call_id = _name(context)
            is_first = True
            try:
                async with (
                    self._in_flight.serving(context, self._bounds.streams, attempt(context)),
                    aclosing(self._messages(context, parse)) as messages,
                    aclosing(serve(messages, context)) as answers,
                ):
                    async for answer in answers:
                        if is_first:
                            await context.send_initial_metadata(((REQUEST_ID_KEY, call_id),))
                            is_first = False
                        await context.write(answer)
            except (Exception, asyncio.CancelledError) as error:
                # A BaseError is the transport's own word that the client is gone.
                if is_own_cancellation(error) or isinstance(error, grpc.aio.BaseError):
                    raise
                await _abort(context, error, call_id)
            if is_first:
                await context.send_initial_metadata(((REQUEST_ID_KEY, call_id),))

        return served

    async def _messages(self, context: Context, parse: Parse) -> AsyncGenerator[Received]:
        """A stream's messages, and in their places what could not be taken; reads one when asked for one."""
        while (raw := await context.read()) is not grpc.aio.EOF:
            error: KimeError | None = None
            message = None
            try:
                self._check_size(len(raw))
            except TooLargeError as too_large:
                error = too_large
            try:
                message = _parsed(raw, parse)
            except MalformedError as malformed:
                error = error or malformed
            yield Received(len(raw), message, error)

    def _check_size(self, size: int) -> None:
        """Refuse a message of more bytes than are taken.

        Raises:
            TooLargeError
        """
        if size > self._max_message_bytes:
            raise TooLargeError(size, self._max_message_bytes)


def _parsed(raw: bytes, parse: Parse) -> Any:
    """The message that the bytes are.

    Raises:
        MalformedError
    """
    # On the loop, big ones too: protobuf holds the GIL while it parses, so a thread would free nothing.
    try:
        return parse(raw)
    except DecodeError:
        raise MalformedError(
            "the bytes are no message of this method; is the client built from this contract?"
        ) from None


def attempt(context: Context) -> int:
    """How often a client of gRPC has tried a call before, by what it says."""
    said = next((value for key, value in context.invocation_metadata() or () if key == ATTEMPTS_KEY), "")
    return int(said) if isinstance(said, str) and said.isdecimal() and len(said) < 4 else 0


def _name(context: Context) -> str:
    """The call's id: the caller's if it is well formed, else a new one. Sets `request_id`."""
    metadata = context.invocation_metadata() or ()
    given = next((value for key, value in metadata if key == REQUEST_ID_KEY), None)
    is_good = isinstance(given, str) and _WELL_FORMED_ID.fullmatch(given)
    call_id = str(given) if is_good else uuid.uuid4().hex
    request_id.set(call_id)
    return call_id


async def _abort(context: Context, error: BaseException, call_id: str) -> NoReturn:
    """End the call with what the table of errors says, in trailers."""
    said = error_status(error, call_id)
    trailers: list[tuple[str, str | bytes]] = [
        (REQUEST_ID_KEY, call_id),
        (DETAILS_KEY, said.status.SerializeToString()),
    ]
    if said.pushback_ms is not None:
        trailers.append((PUSHBACK_KEY, str(said.pushback_ms)))
    await context.abort(_CODES[said.status.code], said.status.message, tuple(trailers))
