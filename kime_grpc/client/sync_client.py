"""`Client`: calls a server and waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from kime_grpc.client import calls
from kime_grpc.client.calls import AnyRequest, Call, Questions, T
from kime_grpc.client.channel import ChannelOptions, Connection, Tls
from kime_grpc.client.errors import CallError
from kime_grpc.client.ledger import Defaults, Ledger
from kime_grpc.client.sync_stream import SyncStream
from kime_grpc.client.values import Id, ModelInfo, StreamResult, TokenCounts
from kime_grpc.core.answers import Response
from kime_grpc.core.errors import ClosedError
from kime_grpc.core.json_text import JsonValue
from kime_grpc.core.request import CacheMode, Request


class Client:
    """A connection to a server. Safe from any thread; close it, or use it as a context manager.

    Opening one sends nothing. Calls that a busy or stopping server refuses are tried again by gRPC, as the
    service config beside this file says, until their timeout.
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
        """Name a server.

        Args:
            target: `host:port`, or any other target that gRPC knows.
            token: sent with every call as `authorization: Bearer ...`; over plaintext to this machine only.
            tls: how the connection is secured; None for plaintext.
            timeout: seconds that a call may take, its retries included; None for any time. Streams have none.
            plaintext_token: send the token over plaintext to other machines too.
            options: gRPC channel options that replace the usual ones of the same name.

        Raises:
            ValueError: no target, or a token that is none or would be seen by others.
            OSError: a certificate file that cannot be read.
        """
        self._connection = Connection(target, token, tls, plaintext_token, options)
        self._timeout = calls.seconds(timeout)
        self._closed = False
        self._channel = self._connection.open()
        self._methods = calls.methods(self._channel)

    def close(self) -> None:
        """End the connection. Calls that wait end with a `CallError` of code CANCELLED."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def decide(
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
        """Answer questions about a state.

        Args:
            state: text or JSON; or a whole `Request`, which has its questions and budgets itself.
            questions: by id, each a `Choice`, `Score`, `Noul` or a dict in Laya's JSON form.
            model: the model's id; None for the server's default.
            max_len: the row's budget in tokens; None for the checkpoint's.
            head_max_len: the head's budget in tokens; None for the checkpoint's.
            cache: what to do with the server's answer cache.
            timeout: seconds that the call may take; None for the client's own.
            request_id: your name for this call in the server's records.

        Raises:
            CallError: the request does not validate, or the server did not answer.
            ClosedError: the client was closed.
        """
        request = calls.one_request(state, questions, max_len, head_max_len, cache)
        return self._run(calls.decide(request, model), timeout, request_id)

    def decide_stream(
        self,
        items: Iterable[tuple[Id, AnyRequest]],
        *,
        questions: Questions | None = None,
        model: str | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
        cache: CacheMode = CacheMode.USE,
        max_wait: float | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> Iterator[StreamResult[Id]]:
        """Answer many requests over one stream; gives results as they get ready, in any order.

        Items are pulled in a thread of their own, no faster than answers are taken. A bad item gives a result
        with an error and never ends the stream. When the server stops or restarts its worker, what is
        unanswered is sent again.

        Args:
            items: pairs of an id, any value that you want back with the result, and a `Request` or a dict in
                Laya's JSON form.
            questions: those of items that have none.
            model: the model of all items; None for the server's default.
            max_len: the row's budget of items that have none.
            head_max_len: the head's budget of items that have none.
            cache: the cache mode of items whose mode is `use`.
            max_wait: seconds that each item may take at the server.
            timeout: seconds that the whole stream may take; None for any time.
            request_id: your name for this stream in the server's records.

        Raises:
            CallError: bad defaults at once; later, a stream that fails as a whole.
            ClosedError: the client was closed.
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

        def open_call(messages: Iterator[Any]) -> Any:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._methods["DecideStream"](messages, timeout=left, metadata=metadata)

        return SyncStream(open_call, Ledger[Id](defaults), items).results()

    def embed(
        self,
        texts: Iterable[str],
        max_length: int | None = None,
        *,
        unit_norm: bool = False,
        model: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> list[tuple[float, ...]]:
        """The mean of the encoder's token vectors for each text.

        Args:
            texts: what to embed.
            max_length: how many tokens of each are read, special tokens included; None for 512, or what the
                model takes if less.
            unit_norm: scale every vector to length 1.
            model: the model's id; None for the server's default.
            timeout: seconds that the call may take; None for the client's own.
            request_id: your name for this call in the server's records.

        Returns:
            One vector of float32 values a text, in the texts' order.

        Raises:
            CallError, ClosedError: as `decide`.
        """
        return self._run(calls.embed(texts, max_length, model, unit_norm=unit_norm), timeout, request_id)

    def count_tokens(
        self,
        state: JsonValue | Request,
        questions: Questions | None = None,
        *,
        model: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> TokenCounts:
        """Count the tokens of a request without running the model; the arguments are those of `decide`.

        Raises:
            CallError, ClosedError: as `decide`.
        """
        request = calls.one_request(state, questions, None, None, CacheMode.USE)
        return self._run(calls.count_tokens(request, model), timeout, request_id)

    def models(self, *, timeout: float | None = None, request_id: str | None = None) -> tuple[ModelInfo, ...]:
        """The models that the server has open, the default one first. Raises as `decide`."""
        return self._run(calls.models(), timeout, request_id)

    def model(
        self, id: str | None = None, *, timeout: float | None = None, request_id: str | None = None
    ) -> ModelInfo:
        """One model; None for the server's default. Raises as `decide`."""
        return self._run(calls.model(id), timeout, request_id)

    def _run(self, call: Call[T], timeout: float | None, request_id: str | None) -> T:
        self._check_open()
        try:
            message = self._methods[call.method](
                call.message,
                timeout=self._timeout if timeout is None else calls.seconds(timeout),
                metadata=self._connection.metadata(request_id),
            )
        except grpc.RpcError as error:
            raise CallError.from_rpc(error) from error
        return call.read(message)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed; open another")
