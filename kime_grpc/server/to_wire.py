"""Answers to the contract's messages. Numbers pass through unrounded; labels and levels become text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.duration_pb2 import Duration

from kime_grpc.core.answers import (
    Answer,
    ChoiceAnswer,
    Response,
    ScoreAnswer,
    Timing,
    Usage,
)
from kime_grpc.core.json_text import to_text
from kime_grpc.core.request import CheckedRequest
from kime_grpc.v1 import answer_pb2, decision_service_pb2

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kime_grpc.engine.preparing import TokenCounts
    from kime_grpc.engine.reports import Embedded


def decide_response(response: Response) -> decision_service_pb2.DecideResponse:
    """A response as a message."""
    return decision_service_pb2.DecideResponse(
        model=response.model,
        revision=response.revision,
        calibration_id=response.calibration_id,
        answers=[_answer(str(key), answer) for key, answer in response.answers.items()],
        usage=_usage(response.usage),
        timing=_timing(response.timing),
    )


def numbers_in(response: Response) -> int:
    """How many numbers a response carries, as a measure of what making its message costs."""
    return sum(len(answer.probabilities) for answer in response.answers.values())


def embed_response(
    model: str, revision: str, embedded: Embedded, *, unit_norm: bool
) -> decision_service_pb2.EmbedResponse:
    """Vectors as a message, each of length 1 with `unit_norm`."""
    vectors = _normalised(embedded.vectors) if unit_norm else embedded.vectors
    return decision_service_pb2.EmbedResponse(
        model=model,
        revision=revision,
        embeddings=[decision_service_pb2.Embedding(values=vector) for vector in vectors.tolist()],
        input_tokens=embedded.input_tokens,
        timing=_timing(embedded.timing),
    )


def count_response(
    model: str, request: CheckedRequest, counts: TokenCounts
) -> decision_service_pb2.CountTokensResponse:
    """Token counts as a message."""
    return decision_service_pb2.CountTokensResponse(
        model=model,
        total_tokens=counts.total,
        state_tokens=counts.state,
        questions=[
            decision_service_pb2.QuestionTokens(
                question_id=question.id,
                instruction_tokens=counts.questions[question.key].instructions,
                option_tokens=counts.questions[question.key].options,
            )
            for question in request.questions
        ],
    )


def _timing(spent: Timing) -> answer_pb2.Timing:
    return answer_pb2.Timing(
        queue=_duration(spent.queue),
        tokenize=_duration(spent.tokenize),
        device=_duration(spent.device),
        batches=spent.batches,
    )


def _normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each row of `[n, d]` scaled to length 1; a row of zeros stays as it is."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def _answer(question_id: str, answer: Answer) -> answer_pb2.Answer:
    message = answer_pb2.Answer(
        question_id=question_id,
        entropy_confidence=answer.confidence.entropy,
        margin_confidence=answer.confidence.margin,
        answer_confidence=answer.confidence.answer,
        act_probability=answer.confidence.act,
    )
    if isinstance(answer, ChoiceAnswer):
        message.choice.label = str(answer.choice)
        message.choice.index = answer.labels.index(answer.choice)
        message.choice.labels.extend(map(str, answer.labels))
        message.choice.probabilities.extend(answer.probabilities)
    elif isinstance(answer, ScoreAnswer):
        message.score.value = answer.score
        message.score.levels.extend(map(to_text, answer.levels))
        message.score.probabilities.extend(answer.probabilities)
    else:
        message.noul.probability = answer.noul
        message.noul.labels.extend(answer.labels)
        message.noul.probabilities.extend(answer.probabilities)
    return message


def _usage(usage: Usage) -> answer_pb2.Usage:
    return answer_pb2.Usage(
        input_tokens=usage.input_tokens,
        state_tokens=usage.state_tokens,
        state_tokens_dropped=usage.state_tokens_dropped,
        dropped=[
            answer_pb2.DroppedTokens(question_id=str(key), tokens=tokens)
            for key, tokens in usage.dropped.items()
        ],
        collapsed=[
            answer_pb2.CollapsedOptions(
                question_id=str(key),
                total=collapsed.total,
                distinct=collapsed.distinct,
                tokens_per_option=collapsed.tokens_per_option or 0,
            )
            for key, collapsed in usage.collapsed.items()
        ],
        cached=map(str, usage.cached),
    )
