"""The gRPC client, sync and async: typed questions in, answers as values out, errors that say why."""

from kime_grpc.client.async_client import AsyncClient
from kime_grpc.client.channel import Tls, service_config
from kime_grpc.client.errors import CallError
from kime_grpc.client.sync_client import Client
from kime_grpc.client.values import ModelInfo, ModelLimits, QuestionTokens, StreamResult, TokenCounts

__all__ = [
    "AsyncClient",
    "CallError",
    "Client",
    "ModelInfo",
    "ModelLimits",
    "QuestionTokens",
    "StreamResult",
    "Tls",
    "TokenCounts",
    "service_config",
]
