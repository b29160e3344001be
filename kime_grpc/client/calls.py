"""Every unary call of the client as a value: which method, which message, and how to read the answer.

The sync and the async client only move these; what a call means is written here once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message

from kime_grpc.client import reading, writing
from kime_grpc.client.errors import CallError
from kime_grpc.client.values import ModelInfo, TokenCounts
from kime_grpc.core import json_text
from kime_grpc.core.answers import Response
from kime_grpc.core.errors import InvalidError, Problem
from kime_grpc.core.json_text import JsonValue
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.request import AnyQuestion, CacheMode, CheckedRequest, QuestionKey, Request, RequestLimits
from kime_grpc.v1 import decision_service_pb2, model_service_pb2
from kime_grpc.v1.decision_service_pb2_grpc import DecisionServiceStub
from kime_grpc.v1.model_service_pb2_grpc import ModelServiceStub

T = TypeVar("T")

AnyRequest: TypeAlias = Request | Mapping[str, Any]
Questions: TypeAlias = Mapping[QuestionKey, AnyQuestion]

# What fits the contract's fields. How much is too much is for the server to say.
_LARGEST = 2**32 - 1
_LIMITS = RequestLimits(questions=_LARGEST, options=_LARGEST, levels=_LARGEST)
# Seconds, about 30 years; somewhere beyond, gRPC's clock runs over.
_LONGEST = 1e9


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One unary call.

    Attributes:
        method: its name.
        message: what is sent.
        read: turns the message that comes back into the caller's value.
    """

    method: str
    message: Message
    read: Callable[[Any], T]


def methods(channel: Any) -> dict[str, Any]:
    """The callables of a channel, sync or async, by method name."""
    decisions, models = DecisionServiceStub(channel), ModelServiceStub(channel)
    return {
        "Decide": decisions.Decide,
        "DecideStream": decisions.DecideStream,
        "Embed": decisions.Embed,
        "CountTokens": decisions.CountTokens,
        "ListModels": models.ListModels,
        "GetModel": models.GetModel,
    }


def decide(request: CheckedRequest, model: str | None) -> Call[Response]:
    """Answer a request."""
    message = writing.decide_request(request, model_name(model))
    return Call("Decide", message, partial(reading.response, questions=request.questions))


def count_tokens(request: CheckedRequest, model: str | None) -> Call[TokenCounts]:
    """Count a request's tokens."""
    message = decision_service_pb2.CountTokensRequest(
        model=model_name(model),
        state=writing.content(request.state),
        questions=writing.questions(request.questions),
    )
    return Call("CountTokens", message, partial(reading.token_counts, questions=request.questions))


def embed(
    texts: Iterable[str], max_length: int | None, model: str | None, *, unit_norm: bool
) -> Call[list[tuple[float, ...]]]:
    """Embed texts.

    Raises:
        CallError: a text that is none, or a length that is none.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        problems = [Problem("texts", "type", "send a list of texts, also for a single one", texts)]
    else:
        texts = list(texts)  # They are read twice, and a generator gives its own once.
        problems = [p for i, text in enumerate(texts) for p in _text_problems(f"texts[{i}]", text)]
    problems += _length_problems("max_length", max_length)
    if problems:
        raise CallError.from_invalid(InvalidError(problems))
    message = decision_service_pb2.EmbedRequest(
        model=model_name(model), texts=texts, max_length=max_length or 0, unit_norm=unit_norm
    )
    return Call("Embed", message, reading.embeddings)


def models() -> Call[tuple[ModelInfo, ...]]:
    """List the models."""
    return Call("ListModels", model_service_pb2.ListModelsRequest(), reading.models)


def model(model_id: str | None) -> Call[ModelInfo]:
    """Describe a model."""
    return Call("GetModel", model_service_pb2.GetModelRequest(id=model_name(model_id)), reading.model)


def one_request(
    state: JsonValue | Request,
    questions: Questions | None,
    max_len: int | None,
    head_max_len: int | None,
    cache: CacheMode,
) -> CheckedRequest:
    """The request that the arguments of `Client.decide` make.

    Raises:
        CallError: with every problem of the request.
        TypeError: a `Request` beside arguments that it has itself.
    """
    if isinstance(state, Request):
        if (questions, max_len, head_max_len, cache) != (None, None, None, CacheMode.USE):
            raise TypeError(
                "a Request has its own questions, max_len, head_max_len and cache: leave the arguments out"
            )
        return check(state)
    if questions is None:
        raise TypeError("questions are missing: pass them beside the state, or pass a Request")
    return check(Request(state, questions, max_len, head_max_len, cache))


def check(request: AnyRequest) -> CheckedRequest:
    """Check a request's structure, leaving what is too much to the server.

    Raises:
        CallError: with every problem.
    """
    try:
        return parse_request(request, _LIMITS, max_row_tokens=_LARGEST)
    except InvalidError as error:
        raise CallError.from_invalid(error) from None


def model_name(model: str | None) -> str:
    """A model's name for the wire: empty for the server's default.

    Raises:
        CallError: a name that is no text.
    """
    if model is None:
        return ""
    problems = _text_problems("model", model)
    if problems:
        raise CallError.from_invalid(InvalidError(problems))
    return model


def seconds(timeout: float | None) -> float | None:
    """A timeout as gRPC takes it: None for any time, which infinity says too.

    Raises:
        ValueError: what gRPC would take for a deadline that has passed: NaN, or more than it can count.
    """
    if timeout is None or timeout == math.inf:
        return None
    if not timeout < _LONGEST:
        raise ValueError(f"timeout is a number of seconds below {_LONGEST:g}, or None, not {timeout!r}")
    return timeout


def _text_problems(path: str, text: Any) -> list[Problem]:
    if not isinstance(text, str):
        return [Problem(path, "type", f"must be a text, not a {type(text).__name__}", text)]
    return [Problem(path, flaw.kind, flaw.message, text) for flaw in json_text.check(text)]


def _length_problems(path: str, length: Any) -> list[Problem]:
    if length is None:
        return []
    if not isinstance(length, int) or isinstance(length, bool):
        return [Problem(path, "type", "a length is a whole number of tokens", length)]
    if not 1 <= length <= _LARGEST:
        return [Problem(path, "range", f"a length is 1 to {_LARGEST} tokens", length)]
    return []
