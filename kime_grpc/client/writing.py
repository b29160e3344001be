"""Checked requests to the contract's messages."""

from __future__ import annotations

from collections.abc import Iterable

from kime_grpc.core.json_text import JsonValue, to_text
from kime_grpc.core.request import DEFAULT_NOUL_LABELS, CacheMode, CheckedRequest, Question, QuestionType
from kime_grpc.v1 import content_pb2, decision_service_pb2, question_pb2

_CACHE_MODES = {
    # The contract's unspecified means use, so the common case costs no byte.
    CacheMode.USE: decision_service_pb2.CACHE_MODE_UNSPECIFIED,
    CacheMode.BYPASS: decision_service_pb2.CACHE_MODE_BYPASS,
    CacheMode.REFRESH: decision_service_pb2.CACHE_MODE_REFRESH,
}


def decide_request(request: CheckedRequest, model: str) -> decision_service_pb2.DecideRequest:
    """The message of a decision. An empty `model` is the server's default."""
    message = decision_service_pb2.DecideRequest(
        model=model, state=content(request.state), questions=questions(request.questions)
    )
    options = decision_service_pb2.DecideOptions(
        max_len=request.max_len or 0,
        head_max_len=request.head_max_len or 0,
        cache_mode=_CACHE_MODES[request.cache],
    )
    if options.ByteSize():
        message.options.CopyFrom(options)
    return message


def questions(checked: Iterable[Question]) -> list[question_pb2.Question]:
    """The messages of questions. Keys and labels travel as text."""
    return [_question(question) for question in checked]


def content(value: JsonValue) -> content_pb2.Content:
    """A text as it is, anything else as a JSON document."""
    if isinstance(value, str):
        return content_pb2.Content(text=value)
    return content_pb2.Content(json=to_text(value))


def _question(question: Question) -> question_pb2.Question:
    message = question_pb2.Question(
        id=question.id,
        instructions=content(question.instructions),
        option_order=question.option_order or (),
    )
    if question.type is QuestionType.CHOICE:
        message.choice.options.extend(
            question_pb2.ChoiceOption(label=str(label), description=_description(description))
            for label, description in zip(question.labels, question.descriptions, strict=True)
        )
    elif question.type is QuestionType.SCORE:
        message.score.levels.extend(content(level) for level in question.descriptions)
    else:
        false, true = question.descriptions
        message.noul.CopyFrom(
            question_pb2.NoulQuestion(
                false_description=_description(false), true_description=_description(true)
            )
        )
        if question.labels != DEFAULT_NOUL_LABELS:
            false_label, true_label = question.labels
            message.noul.labels.false_label = str(false_label)
            message.noul.labels.true_label = str(true_label)
    return message


def _description(value: JsonValue) -> content_pb2.Content | None:
    return None if value is None else content(value)
