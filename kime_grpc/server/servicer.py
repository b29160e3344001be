"""The service core behind grpc.aio: a thin adapter, one line a method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from grpc.aio import ServicerContext

from kime_grpc.server.call import Call
from kime_grpc.server.interceptors import attempt, request_id
from kime_grpc.server.service import ServiceCore
from kime_grpc.v1 import (
    decision_service_pb2,
    decision_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)


class DecisionServicer(decision_service_pb2_grpc.DecisionServiceServicer):
    """kime.v1.DecisionService."""

    def __init__(self, core: ServiceCore) -> None:
        """Serve from `core`."""
        self._core = core

    async def Decide(
        self, request: decision_service_pb2.DecideRequest, context: ServicerContext[Any, Any]
    ) -> decision_service_pb2.DecideResponse:
        """Answer the questions of one request."""
        return await self._core.decide(request, _call(context))

    async def DecideStream(
        self,
        # What the interceptor makes of the bytes: instances of `Received`.
        request_iterator: AsyncIterator[Any],
        context: ServicerContext[Any, Any],
    ) -> AsyncGenerator[decision_service_pb2.DecideStreamResponse]:
        """Answer many requests over one stream."""
        async with aclosing(self._core.decide_stream(request_iterator, _call(context))) as answers:
            async for answer in answers:
                yield answer

    async def Embed(
        self, request: decision_service_pb2.EmbedRequest, context: ServicerContext[Any, Any]
    ) -> decision_service_pb2.EmbedResponse:
        """Embed texts."""
        return await self._core.embed(request, _call(context))

    async def CountTokens(
        self, request: decision_service_pb2.CountTokensRequest, context: ServicerContext[Any, Any]
    ) -> decision_service_pb2.CountTokensResponse:
        """Count a request's tokens."""
        return await self._core.count_tokens(request, _call(context))


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """kime.v1.ModelService."""

    def __init__(self, core: ServiceCore) -> None:
        """Serve from `core`."""
        self._core = core

    async def ListModels(
        self, request: model_service_pb2.ListModelsRequest, context: ServicerContext[Any, Any]
    ) -> model_service_pb2.ListModelsResponse:
        """List the models."""
        return await self._core.list_models(request, _call(context))

    async def GetModel(
        self, request: model_service_pb2.GetModelRequest, context: ServicerContext[Any, Any]
    ) -> model_service_pb2.GetModelResponse:
        """Describe one model."""
        return await self._core.get_model(request, _call(context))


def _call(context: ServicerContext[Any, Any]) -> Call:
    return Call(request_id.get(), context.time_remaining(), attempt(context))
