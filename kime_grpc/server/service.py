"""The services without a transport: the contract's messages in, messages or a `KimeError` out.

Another host than grpc.aio is another thin adapter around this.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from google.protobuf.message import Message

from kime_grpc.core.errors import DrainingError, NotFoundError
from kime_grpc.core.request import CheckedRequest
from kime_grpc.engine.lanes import Lanes
from kime_grpc.server import to_wire
from kime_grpc.server.bounds import Bounds
from kime_grpc.server.call import Call, Deadline
from kime_grpc.server.engine import Engine
from kime_grpc.server.from_wire import (
    Defaults,
    Rules,
    read_count,
    read_defaults,
    read_item,
    read_max_wait,
    read_request,
    read_texts,
)
from kime_grpc.server.settings import ServerSettings
from kime_grpc.server.stream import ItemStream, Received, Share
from kime_grpc.v1 import decision_service_pb2, model_service_pb2

_T = TypeVar("_T")

# What takes two milliseconds at the worst to check, or to make a message of; more is done off the event loop.
ON_LOOP_BYTES = 512
# So many numbers of an answer cost as much as a byte of a request.
NUMBERS_A_BYTE = 2
DEFAULT_EMBED_LENGTH = 512
FEATURES = ("decide", "embed", "count_tokens")


class ServiceCore:
    """Both services of the contract over one engine. Lives on one event loop."""

    def __init__(self, engine: Engine, settings: ServerSettings, bounds: Bounds) -> None:
        """Serve `engine`, within the limits of `settings`; count the items of streams in `bounds`."""
        self._engine = engine
        self._settings = settings
        self._bounds = bounds
        self._rules = Rules(engine.limits, engine.max_row_tokens)
        # What waits there is bounded as part of the bytes in flight.
        self._lanes = Lanes("kime-serve", limit_bytes=sys.maxsize)
        self._streams: set[ItemStream] = set()
        self._is_draining = False
        self._digest = ""
        self._digest_lock = asyncio.Lock()

    # DecisionService

    async def decide(
        self, request: decision_service_pb2.DecideRequest, call: Call
    ) -> decision_service_pb2.DecideResponse:
        """Answer the questions of one request.

        Raises:
            NotFoundError, InvalidError, and what `Kime.decide_async` raises.
        """
        self._check_model(request.model)
        deadline = Deadline(call.timeout)
        return await self._decide(
            request, lambda: read_request(request, self._rules), call, deadline, deadline
        )

    async def decide_stream(
        self, messages: AsyncIterator[Received], call: Call
    ) -> AsyncGenerator[decision_service_pb2.DecideStreamResponse]:
        """Answer many requests, each as it gets ready; see `ItemStream`.

        Args:
            messages: what the client sends, and what of it could not be read.
            call: the stream's call; its timeout is the whole stream's.

        Raises:
            InvalidError, NotFoundError, TooLargeError: bad defaults.
            OverloadedError: no room for the defaults.
            DrainingError: the server is stopping, and all that was read is answered.
        """
        if self._is_draining:
            raise DrainingError("the server is stopping and takes no new work; try again, on another replica")
        stream_deadline = Deadline(call.timeout)
        # However much of it is in flight, it takes turns with other callers.
        call = replace(call, caller=object())

        async def answer(
            item: decision_service_pb2.StreamItem, defaults: Defaults, *, is_id_taken: bool
        ) -> decision_service_pb2.DecideResponse:
            self._check_model(item.request.model or defaults.model)
            # The end of the stream's own time is the transport's to tell, as the stream's status.
            deadline = Deadline(read_max_wait(item))
            return await self._decide(
                item,
                lambda: read_item(item, self._rules, defaults, is_id_taken=is_id_taken),
                call,
                deadline,
                deadline.or_sooner(stream_deadline),
            )

        share = Share(self._settings.stream_items, self._settings.stream_bytes)
        stream = ItemStream(answer, self._defaults, share, self._bounds.bytes, call.request_id)
        self._streams.add(stream)
        try:
            async with aclosing(stream.answers(messages)) as answers:
                async for response in answers:
                    yield response
        finally:
            self._streams.discard(stream)

    async def embed(
        self, request: decision_service_pb2.EmbedRequest, call: Call
    ) -> decision_service_pb2.EmbedResponse:
        """Embed texts.

        Raises:
            NotFoundError, InvalidError, and what `Kime.embed_async` raises.
        """
        self._check_model(request.model)
        deadline = Deadline(call.timeout)
        max_length = request.max_length or min(DEFAULT_EMBED_LENGTH, self._engine.max_row_tokens)
        async with deadline.enforced():
            texts = read_texts(request, self._rules, self._settings.max_texts)
            embedded = await self._engine.embed_async(
                texts, max_length, timeout=deadline.seconds_left, attempt=call.attempt
            )
            return await self._do(
                lambda: to_wire.embed_response(
                    self._engine.model_id, self._engine.revision, embedded, unit_norm=request.unit_norm
                ),
                embedded.vectors.size // NUMBERS_A_BYTE,
            )

    async def count_tokens(
        self, request: decision_service_pb2.CountTokensRequest, call: Call
    ) -> decision_service_pb2.CountTokensResponse:
        """Count a request's tokens without running the model.

        Raises:
            NotFoundError, InvalidError, LateError
        """
        self._check_model(request.model)
        async with Deadline(call.timeout).enforced():
            checked = await self._do(lambda: read_count(request, self._rules), request.ByteSize())
            counts = await self._engine.token_counts_async(checked)
            return to_wire.count_response(self._engine.model_id, checked, counts)

    # ModelService

    async def list_models(
        self, _: model_service_pb2.ListModelsRequest, call: Call
    ) -> model_service_pb2.ListModelsResponse:
        """All models, the default one first."""
        async with Deadline(call.timeout).enforced():
            return model_service_pb2.ListModelsResponse(models=[await self._model()])

    async def get_model(
        self, request: model_service_pb2.GetModelRequest, call: Call
    ) -> model_service_pb2.GetModelResponse:
        """One model.

        Raises:
            NotFoundError: no such model.
        """
        self._check_model(request.id)
        async with Deadline(call.timeout).enforced():
            return model_service_pb2.GetModelResponse(model=await self._model())

    # Stopping

    def drain(self) -> None:
        """Let every stream read no further, answer what is in flight and end with a `DrainingError`."""
        self._is_draining = True
        for stream in self._streams:
            stream.drain()

    def close(self) -> None:
        """Let go of the threads; waits for what they are at, which nobody waits for any more."""
        self._lanes.close()

    # Steps

    async def _decide(
        self,
        message: Message,
        read: Callable[[], CheckedRequest],
        call: Call,
        deadline: Deadline,
        last_use: Deadline,
    ) -> decision_service_pb2.DecideResponse:
        """Read, decide, answer: late after `deadline`, and not worth beginning after `last_use`."""
        async with deadline.enforced():
            checked = await self._do(read, message.ByteSize())
            response = await self._engine.decide_async(
                checked,
                scope=call.scope,
                timeout=last_use.seconds_left,
                attempt=call.attempt,
                caller=call.caller,
            )
            return await self._do(
                lambda: to_wire.decide_response(response), to_wire.numbers_in(response) // NUMBERS_A_BYTE
            )

    async def _defaults(self, message: decision_service_pb2.StreamDefaults) -> Defaults:
        defaults = await self._do(lambda: read_defaults(message, self._rules), message.ByteSize())
        self._check_model(defaults.model)
        return defaults

    async def _do(self, work: Callable[[], _T], size: int) -> _T:
        """Do work about a few bytes here, and about more of them off the event loop."""
        if size <= ON_LOOP_BYTES:
            return work()
        return await asyncio.wrap_future(self._lanes.submit(size, work))

    def _check_model(self, name: str) -> None:
        there_is = self._engine.model_id
        if name not in ("", there_is):
            raise NotFoundError(
                f"there is no model {name!r} here; use {there_is!r}, or leave the model out",
                name=name,
                available=(there_is,),
            )

    async def _model(self) -> model_service_pb2.Model:
        engine, settings = self._engine, self._settings
        async with self._digest_lock:
            if not self._digest:
                self._digest = await asyncio.to_thread(engine.digest)
        return model_service_pb2.Model(
            id=engine.model_id,
            family=engine.family,
            revision=engine.revision,
            digest=self._digest,
            limits=model_service_pb2.ModelLimits(
                max_len=engine.max_len,
                head_max_len=engine.head_max_len,
                max_row_tokens=engine.max_row_tokens,
                questions=engine.limits.questions,
                options=engine.limits.options,
                levels=engine.limits.levels,
                request_tokens=engine.limits.tokens or 0,
                request_bytes=settings.max_message_bytes,
                texts=settings.max_texts,
                stream_items=settings.stream_items,
            ),
            precision=engine.precision,
            device=engine.device,
            features=FEATURES,
            calibration_id=engine.calibration.id,
            is_default=True,
        )
