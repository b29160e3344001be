"""Rows and what the device said of them to a response."""

from __future__ import annotations

from collections.abc import Sequence

from kime_grpc.core.answers import Answer, ChoiceAnswer, Collapsed, Confidence, NoulAnswer, ScoreAnswer, Usage
from kime_grpc.core.calibration import Calibration
from kime_grpc.core.probabilities import distribution
from kime_grpc.core.request import Question, QuestionType
from kime_grpc.engine.preparing import Prepared
from kime_grpc.models.model import RowOutput


def answer(question: Question, output: RowOutput, calibration: Calibration) -> Answer:
    """One question's answer, with the labels of the request at hand."""
    options = len(question.descriptions)
    said = distribution(output.logits, calibration.temperature(question.type, options), question.option_order)
    confidence = Confidence(
        entropy=said.entropy_confidence,
        margin=said.margin_confidence,
        answer=said.answer_confidence,
        act=float(output.act[0]),
    )
    if question.type is QuestionType.CHOICE:
        return ChoiceAnswer(question.labels[said.top], question.labels, said.probabilities, confidence)
    if question.type is QuestionType.SCORE:
        return ScoreAnswer(said.expected, question.descriptions, said.probabilities, confidence)
    false_label, true_label = question.labels
    false, true = said.probabilities
    return NoulAnswer(true, (str(false_label), str(true_label)), (false, true), confidence)


def usage(prepared: Prepared, cached: Sequence[bool]) -> Usage:
    """What was read for a request. `cached` says of each row whether the answer cache had it."""
    keys = [question.key for question in prepared.request.questions]
    return Usage(
        input_tokens=sum(fit.tokens for fit in prepared.fits),
        state_tokens=prepared.state_tokens,
        dropped={key: fit.dropped for key, fit in zip(keys, prepared.fits, strict=True) if fit.dropped},
        collapsed={
            key: Collapsed(fit.options, fit.distinct, fit.tokens_per_option)
            for key, fit in zip(keys, prepared.fits, strict=True)
            if fit.distinct < fit.options
        },
        cached=tuple(key for key, hit in zip(keys, cached, strict=True) if hit),
    )
