"""The contract's messages to values, with the caller's own keys, labels and levels for the wire's texts."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf.duration_pb2 import Duration

from kime_grpc.client.errors import CallError
from kime_grpc.client.values import ModelInfo, ModelLimits, QuestionTokens, TokenCounts
from kime_grpc.core.answers import (
    Answer,
    ChoiceAnswer,
    Collapsed,
    Confidence,
    NoulAnswer,
    Response,
    ScoreAnswer,
    Timing,
    Usage,
)
from kime_grpc.core.request import Question, QuestionType
from kime_grpc.v1 import answer_pb2, decision_service_pb2, model_service_pb2


def response(message: decision_service_pb2.DecideResponse, questions: Sequence[Question]) -> Response:
    """The response to `questions`.

    Raises:
        CallError: INTERNAL, if the answers are not those to the questions.
    """
    _match([a.question_id for a in message.answers], questions)
    return Response(
        model=message.model,
        revision=message.revision,
        calibration_id=message.calibration_id,
        answers={q.key: _answer(q, a) for q, a in zip(questions, message.answers, strict=True)},
        usage=_usage(message.usage, questions),
        timing=Timing(
            queue=_seconds(message.timing.queue),
            tokenize=_seconds(message.timing.tokenize),
            device=_seconds(message.timing.device),
            batches=message.timing.batches,
        ),
    )


def token_counts(
    message: decision_service_pb2.CountTokensResponse, questions: Sequence[Question]
) -> TokenCounts:
    """The token counts of `questions` and their state. Raises as `response` does."""
    _match([c.question_id for c in message.questions], questions)
    return TokenCounts(
        total=message.total_tokens,
        state=message.state_tokens,
        questions={
            q.key: QuestionTokens(c.instruction_tokens, c.option_tokens)
            for q, c in zip(questions, message.questions, strict=True)
        },
    )


def embeddings(message: decision_service_pb2.EmbedResponse) -> list[tuple[float, ...]]:
    """The vectors, in the texts' order."""
    return [tuple(embedding.values) for embedding in message.embeddings]


def models(message: model_service_pb2.ListModelsResponse) -> tuple[ModelInfo, ...]:
    """All models, the default one first."""
    return tuple(_model_info(m) for m in message.models)


def model(message: model_service_pb2.GetModelResponse) -> ModelInfo:
    """One model."""
    return _model_info(message.model)


def _match(ids: Sequence[str], questions: Sequence[Question]) -> None:
    if list(ids) != [q.id for q in questions]:
        raise CallError(
            grpc.StatusCode.INTERNAL,
            f"the server answered other questions than those asked: {len(ids)} answers to {len(questions)}",
        )


def _answer(question: Question, message: answer_pb2.Answer) -> Answer:
    confidence = Confidence(
        entropy=message.entropy_confidence,
        margin=message.margin_confidence,
        answer=message.answer_confidence,
        act=message.act_probability,
    )
    if question.type is QuestionType.CHOICE and message.HasField("choice"):
        choice = message.choice
        if choice.index < len(question.labels) == len(choice.probabilities):
            label = question.labels[choice.index]
            return ChoiceAnswer(label, question.labels, tuple(choice.probabilities), confidence)
    if question.type is QuestionType.SCORE and message.HasField("score"):
        score = message.score
        if len(question.descriptions) == len(score.probabilities):
            return ScoreAnswer(score.value, question.descriptions, tuple(score.probabilities), confidence)
    if question.type is QuestionType.NOUL and message.HasField("noul"):
        noul = message.noul
        if len(noul.probabilities) == 2:
            false_label, true_label = question.labels
            false, true = noul.probabilities
            return NoulAnswer(
                noul.probability, (str(false_label), str(true_label)), (false, true), confidence
            )
    raise CallError(
        grpc.StatusCode.INTERNAL,
        f"the server's answer to question {question.id!r} is of another type or size than the question",
    )


def _usage(message: answer_pb2.Usage, questions: Sequence[Question]) -> Usage:
    keys = {question.id: question.key for question in questions}
    return Usage(
        input_tokens=message.input_tokens,
        state_tokens=message.state_tokens,
        dropped={keys[d.question_id]: d.tokens for d in message.dropped if d.question_id in keys},
        collapsed={
            keys[c.question_id]: Collapsed(c.total, c.distinct, c.tokens_per_option or None)
            for c in message.collapsed
            if c.question_id in keys
        },
        cached=tuple(keys[key] for key in message.cached if key in keys),
    )


def _model_info(message: model_service_pb2.Model) -> ModelInfo:
    limits = message.limits
    return ModelInfo(
        id=message.id,
        family=message.family,
        revision=message.revision,
        digest=message.digest,
        limits=ModelLimits(
            max_len=limits.max_len,
            head_max_len=limits.head_max_len,
            max_row_tokens=limits.max_row_tokens,
            questions=limits.questions,
            options=limits.options,
            levels=limits.levels,
            request_tokens=limits.request_tokens,
            request_bytes=limits.request_bytes,
            texts=limits.texts,
            stream_items=limits.stream_items,
        ),
        precision=message.precision,
        device=message.device,
        features=tuple(message.features),
        calibration_id=message.calibration_id,
        is_default=message.is_default,
    )


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
