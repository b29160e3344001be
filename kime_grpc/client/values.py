"""What a client gives beside a `Response`: stream results, token counts, and what a model says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kime_grpc.client.errors import CallError
from kime_grpc.core.answers import Response
from kime_grpc.core.request import QuestionKey

Id = TypeVar("Id")


@dataclass(frozen=True, slots=True)
class StreamResult(Generic[Id]):
    """How one item of a stream ended: with a response, or with an error.

    Attributes:
        id: the item's id, as the caller gave it.
        response: the answers, or None.
        error: what went wrong, or None.
    """

    id: Id
    response: Response | None = None
    error: CallError | None = None

    def unwrap(self) -> Response:
        """The response. Raises the error where there is none."""
        if self.response is None:
            raise self.error or RuntimeError("a result without response and error")
        return self.response


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """The tokens of one question's head: its type and instructions, and its options."""

    instructions: int
    options: int


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The text tokens of a request before any cut, markers and special tokens left out.

    Attributes:
        total: the state once, and every question's head.
        state: the state's.
        questions: each question's, by the caller's own id.
    """

    total: int
    state: int
    questions: Mapping[QuestionKey, QuestionTokens]


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a request to a model may ask for.

    Attributes:
        max_len: the row's budget where a request gives none, in tokens.
        head_max_len: the head's budget where a request gives none, in tokens.
        max_row_tokens: the longest row that the model takes, in tokens.
        questions: questions in a request.
        options: options in a choice.
        levels: levels in a score.
        request_tokens: tokens of a request, over all its rows.
        request_bytes: bytes of a request's message.
        texts: texts in a call of `embed`.
        stream_items: items of one stream in flight.
    """

    max_len: int
    head_max_len: int
    max_row_tokens: int
    questions: int
    options: int
    levels: int
    request_tokens: int
    request_bytes: int
    texts: int
    stream_items: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that a server has open.

    Attributes:
        id: as requests name it.
        family: the kind of encoder, such as `modernbert`.
        revision: its revision; empty where the checkpoint has none.
        digest: `sha256:` and the digest of the weights' file.
        limits: what a request may ask for.
        precision: what the forward computes in, such as `f32`.
        device: in words, such as `cpu, 2 threads, f32`.
        features: what it can do, such as `decide` and `embed`.
        calibration_id: which temperatures are applied.
        is_default: whether requests that name no model get this one.
    """

    id: str
    family: str
    revision: str
    digest: str
    limits: ModelLimits
    precision: str
    device: str
    features: tuple[str, ...]
    calibration_id: str
    is_default: bool
