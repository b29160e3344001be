"""`AsyncClient`: calls a server from an event loop. Its surface is that of `Client`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from kime_grpc.client import calls
from kime_grpc.client.async_stream import AsyncStream, Items
from kime_grpc.client.calls import Call, Questions, T
from kime_grpc.client.channel import ChannelOptions, Connection, Tls
from kime_grpc.client.errors import CallError
from kime_grpc.client.ledger import Defaults, Ledger
from kime_grpc.client.values import Id, ModelInfo, StreamResult, TokenCounts
from kime_grpc.core.answers import Response
from kime_grpc.core.errors import ClosedError
from kime_grpc.core.json_text import JsonValue
from kime_grpc.core.request import CacheMode, Request


class AsyncClient:
    """A connection to a server, for one event loop. Close it, or use it with `async with`.

    Cancelling a call or leaving a stream drops the work at the server.
    """

    def __init__(
        self,
        target: str = "localhost:50051",
        *,
        token: str | None = None,
        tls: Tls | None = None,
        timeout: float | None = 30.0,
        plaintext_token: bool = False,
        options: ChannelOptions = (),
    ) -> None:
        """Name a server; arguments and errors are those of `Client`. May be made before the loop runs."""
        self._connection = Connection(target, token, tls, plaintext_token, options)
        self._timeout = calls.seconds(timeout)
        self._closed = False

    async def close(self) -> None:
        """End the connection. Calls that wait end with a `CallError` of code CANCELLED."""
        self._closed = True
        if "_channel" in self.__dict__:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def decide(
        self,
        state: JsonValue | Request,
        questions: Questions | None = None,
        *,
        model: str | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
        cache: CacheMode = CacheMode.USE,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> Response:
        """Answer questions about a state; see `Client.decide`."""
        request = calls.one_request(state, questions, max_len, head_max_len, cache)
        return await self._run(calls.decide(request, model), timeout, request_id)

    def decide_stream(
        self,
        items: Items[Id],
        *,
        questions: Questions | None = None,
        model: str | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
        cache: CacheMode = CacheMode.USE,
        max_wait: float | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[StreamResult[Id]]:
        """Answer many requests over one stream; see `Client.decide_stream`.

        `items` may be an async iterable or a plain one, which is then iterated on the event loop.
        """
        defaults = Defaults.check(
            questions,
            model=model,
            max_len=max_len,
            head_max_len=head_max_len,
            cache=cache,
            max_wait=max_wait,
        )
        metadata = self._connection.metadata(request_id)
        self._check_open()
        limit = calls.seconds(timeout)
        deadline = None if limit is None else time.monotonic() + limit

        def open_call() -> Any:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._methods["DecideStream"](timeout=left, metadata=metadata)

        return AsyncStream(open_call, Ledger[Id](defaults), items).results()

    async def embed(
        self,
        texts: Iterable[str],
        max_length: int | None = None,
        *,
        unit_norm: bool = False,
        model: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> list[tuple[float, ...]]:
        """The mean of the encoder's token vectors for each text; see `Client.embed`."""
        call = calls.embed(texts, max_length, model, unit_norm=unit_norm)
        return await self._run(call, timeout, request_id)

    async def count_tokens(
        self,
        state: JsonValue | Request,
        questions: Questions | None = None,
        *,
        model: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> TokenCounts:
        """Count the tokens of a request without running the model; see `Client.count_tokens`."""
        request = calls.one_request(state, questions, None, None, CacheMode.USE)
        return await self._run(calls.count_tokens(request, model), timeout, request_id)

    async def models(
        self, *, timeout: float | None = None, request_id: str | None = None
    ) -> tuple[ModelInfo, ...]:
        """The models that the server has open, the default one first."""
        return await self._run(calls.models(), timeout, request_id)

    async def model(
        self, id: str | None = None, *, timeout: float | None = None, request_id: str | None = None
    ) -> ModelInfo:
        """One model; None for the server's default."""
        return await self._run(calls.model(id), timeout, request_id)

    async def _run(self, call: Call[T], timeout: float | None, request_id: str | None) -> T:
        self._check_open()
        try:
            message = await self._methods[call.method](
                call.message,
                timeout=self._timeout if timeout is None else calls.seconds(timeout),
                metadata=self._connection.metadata(request_id),
            )
        except grpc.RpcError as error:
            raise CallError.from_rpc(error) from error
        return call.read(message)

    @cached_property
    def _channel(self) -> grpc.aio.Channel:
        # Opened by the first call, since a channel belongs to the loop that runs then.
        return self._connection.open_async()

    @cached_property
    def _methods(self) -> dict[str, Any]:
        return calls.methods(self._channel)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed; open another")
