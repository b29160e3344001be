"""Answers as value objects, with the two JSON forms that callers of this field know.

`to_laya()` is what the `laya` package's `predict` returns, key for key, at 4 places. `to_jev()` is the hosted
API's shape, at 2 places, its probabilities rounded so that they sum to exactly 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kime_grpc.core.json_text import JsonValue, to_text
from kime_grpc.core.request import Label, QuestionKey

LAYA_MODEL = "laya-rl-agent"
LAYA_PLACES = 4
JEV_PLACES = 2


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure an answer is, four ways.

    Attributes:
        entropy: 1 - entropy / log(options): how concentrated the distribution is.
        margin: the top probability less the second.
        answer: the top probability, which is what calibration fits.
        act: the probability of the first action that the checkpoint's act head knows.
    """

    entropy: float
    margin: float
    answer: float
    act: float


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The answer to a choice.

    Attributes:
        choice: the most probable label, as the caller gave it.
        labels: all labels, in the question's order.
        probabilities: one a label.
        confidence: how sure it is.
    """

    choice: Label
    labels: tuple[Label, ...]
    probabilities: tuple[float, ...]
    confidence: Confidence

    def to_laya(self) -> dict[str, Any]:
        """Laya's form of this answer."""
        return {
            "type": "choice",
            "choice": self.choice,
            "probabilities": {
                label: round(p, LAYA_PLACES) for label, p in zip(self.labels, self.probabilities, strict=True)
            },
            **_laya_confidence(self.confidence, self.confidence.entropy),
        }

    def to_jev(self) -> dict[str, Any]:
        """The hosted API's form of this answer."""
        k = len(self.probabilities)
        confidence = 1.0 if k == 1 else min(1.0, max(0.0, (max(self.probabilities) - 1 / k) / (1 - 1 / k)))
        return {
            "type": "choice",
            "choice": self.choice,
            "confidence": round(confidence, JEV_PLACES),
            "probabilities": dict(zip(self.labels, round_to_one(self.probabilities), strict=True)),
        }


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The answer to a score.

    Attributes:
        score: the expected level, from 0 to levels - 1.
        levels: the levels, lowest first, as the caller gave them.
        probabilities: one a level.
        confidence: how sure it is.
    """

    score: float
    levels: tuple[JsonValue, ...]
    probabilities: tuple[float, ...]
    confidence: Confidence

    def to_laya(self) -> dict[str, Any]:
        """Laya's form of this answer."""
        return {
            "type": "score",
            "score": round(self.score, LAYA_PLACES),
            "legend": {str(i): to_text(level) for i, level in enumerate(self.levels)},
            "probabilities": {str(i): round(p, LAYA_PLACES) for i, p in enumerate(self.probabilities)},
            **_laya_confidence(self.confidence, self.confidence.entropy),
        }

    def to_jev(self) -> dict[str, Any]:
        """The hosted API's form of this answer."""
        k = len(self.probabilities)
        mode = self.probabilities.index(max(self.probabilities))
        spread = sum(p * abs(i - mode) for i, p in enumerate(self.probabilities))
        # The same spread for a uniform distribution around the centre of the scale.
        uniform = sum(abs(i - (k - 1) / 2) for i in range(k)) / k
        return {
            "type": "score",
            "score": round(self.score, JEV_PLACES),
            "confidence": 1.0 if k == 1 else round(max(0.0, 1 - spread / uniform), JEV_PLACES),
            "legend": {str(i): level for i, level in enumerate(self.levels)},
            "probabilities": {str(i): p for i, p in enumerate(round_to_one(self.probabilities))},
        }


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """The answer to a noul.

    Attributes:
        noul: the probability that the statement holds.
        labels: the words that the model read for "does not hold" and "holds".
        probabilities: one a label.
        confidence: how sure it is.
    """

    noul: float
    labels: tuple[str, str]
    probabilities: tuple[float, float]
    confidence: Confidence

    def to_laya(self) -> dict[str, Any]:
        """Laya's form of this answer."""
        return {
            "type": "noul",
            "noul": round(self.noul, LAYA_PLACES),
            **_laya_confidence(self.confidence, max(self.noul, 1.0 - self.noul)),
        }

    def to_jev(self) -> dict[str, Any]:
        """The hosted API's form of this answer."""
        return {"type": "noul", "noul": round(self.noul, JEV_PLACES)}


Answer: TypeAlias = ChoiceAnswer | ScoreAnswer | NoulAnswer


@dataclass(frozen=True, slots=True)
class Collapsed:
    """A question whose options no longer have a token span each.

    Attributes:
        total: how many options it has.
        distinct: how many still have a span of their own.
        tokens_per_option: what every option was cut to, marker included; None if none was.
    """

    total: int
    distinct: int
    tokens_per_option: int | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What was read for one request.

    Attributes:
        input_tokens: tokens in all rows, special tokens and markers included.
        state_tokens: tokens of the state, before any cut.
        dropped: by question, how many of the state's tokens it had no room for; only where that is not 0.
        collapsed: by question, what the budget did to options that became the same.
        cached: the questions that the answer cache answered.
    """

    input_tokens: int = 0
    state_tokens: int = 0
    dropped: Mapping[QuestionKey, int] = field(default_factory=dict)
    collapsed: Mapping[QuestionKey, Collapsed] = field(default_factory=dict)
    cached: tuple[QuestionKey, ...] = ()

    @property
    def state_tokens_dropped(self) -> int:
        """The most tokens of the state that any question had no room for."""
        return max(self.dropped.values(), default=0)


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time went.

    Attributes:
        queue: seconds from the arrival in the queue to the start of the first batch.
        tokenize: seconds for rendering, tokenizing and laying out.
        device: seconds of the device for the batches that carried this, those shared with others in full.
        batches: how many batches carried it.
    """

    queue: float = 0.0
    tokenize: float = 0.0
    device: float = 0.0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """The answers to one request.

    Attributes:
        model: the id of the model that answered.
        revision: its revision; empty where the checkpoint has none.
        calibration_id: which temperatures were applied.
        answers: one a question, by the caller's own id, in the request's order.
        usage: what was read.
        timing: where the time went.
    """

    model: str
    revision: str
    calibration_id: str
    answers: Mapping[QuestionKey, Answer]
    usage: Usage
    timing: Timing

    def __getitem__(self, question_id: QuestionKey) -> Answer:
        """The answer to one question. Raises KeyError for a question that was not asked."""
        return self.answers[question_id]

    def to_laya(self) -> dict[str, Any]:
        """What the `laya` package's `predict` returns for the same request."""
        usage: dict[str, Any] = {"input_tokens": self.usage.input_tokens, "output_tokens": 0}
        if self.answers:
            usage |= {
                "state_tokens": self.usage.state_tokens,
                "state_tokens_dropped": self.usage.state_tokens_dropped,
                "truncated": bool(self.usage.dropped),
                "truncated_questions": list(self.usage.dropped),
            }
        if self.usage.collapsed:
            usage["options"] = {
                key: {"total": c.total, "distinct": c.distinct, "tokens_per_option": c.tokens_per_option}
                for key, c in self.usage.collapsed.items()
            }
        answers = {key: answer.to_laya() for key, answer in self.answers.items()}
        return {"model": LAYA_MODEL, "answers": answers, "usage": usage}

    def to_jev(self) -> dict[str, Any]:
        """The hosted API's form of this response."""
        return {
            "model": self.model,
            "answers": {key: answer.to_jev() for key, answer in self.answers.items()},
            "usage": {"input_tokens": self.usage.input_tokens, "output_tokens": 0},
        }


def round_to_one(probabilities: Sequence[float], places: int = JEV_PLACES) -> list[float]:
    """Round to `places` by the largest remainder, so that the sum is exactly 1. Earlier options win ties."""
    unit = 10**places
    total = sum(probabilities)
    scaled = [p / total * unit for p in probabilities]
    floors = [int(value) for value in scaled]
    by_remainder = sorted(range(len(scaled)), key=lambda i: floors[i] - scaled[i])
    for i in by_remainder[: unit - sum(floors)]:
        floors[i] += 1
    return [value / unit for value in floors]


def _laya_confidence(confidence: Confidence, published: float) -> dict[str, Any]:
    return {
        "confidence": round(published, LAYA_PLACES),
        "answer_confidence": round(confidence.answer, LAYA_PLACES),
        "action": {"act_probability": round(confidence.act, LAYA_PLACES)},
    }
