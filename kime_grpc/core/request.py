"""What callers ask: typed builders, and the checked form that everything below works on.

A caller writes `Choice`, `Score` and `Noul` (or dicts in Laya's JSON form); `laya_form.parse_request` and the
server's wire reader both turn what came in into a `CheckedRequest`, whose parts are known to be good.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kime_grpc.core.json_text import JsonValue

Label: TypeAlias = str | int | float | bool
QuestionKey: TypeAlias = str | int

DEFAULT_NOUL_LABELS = ("false", "true")


class QuestionType(enum.IntEnum):
    """The three types, numbered as the model's type embedding numbers them."""

    CHOICE = 0
    SCORE = 1
    NOUL = 2

    @property
    def word(self) -> str:
        """The type as requests and rows spell it."""
        return self.name.lower()


class CacheMode(enum.Enum):
    """What a request does with the answer cache."""

    USE = "use"
    BYPASS = "bypass"
    REFRESH = "refresh"


@dataclass(frozen=True, slots=True)
class Choice:
    """Pick one of several labels.

    Attributes:
        instructions: what is asked: text or JSON.
        criteria: a list of labels, or a dict of label to description (text, JSON, or None for no
            description).
        option_order: slot i shows option `option_order[i]`; None for the order of `criteria`.
    """

    instructions: JsonValue
    criteria: Mapping[Label, JsonValue] | Sequence[Label]
    option_order: Sequence[int] | None = None

    def to_laya(self) -> dict[str, Any]:
        """This question in Laya's JSON form."""
        return _laya("choice", self.instructions, self.criteria, self.option_order)


@dataclass(frozen=True, slots=True)
class Score:
    """Give a level on an ordered scale.

    Attributes:
        instructions: what is asked: text or JSON.
        criteria: what each level means, lowest first: text or JSON.
        option_order: slot i shows level `option_order[i]`; None for lowest first.
    """

    instructions: JsonValue
    criteria: Sequence[JsonValue]
    option_order: Sequence[int] | None = None

    def to_laya(self) -> dict[str, Any]:
        """This question in Laya's JSON form."""
        return _laya("score", self.instructions, self.criteria, self.option_order)


@dataclass(frozen=True, slots=True)
class Noul:
    """Give the probability that a statement holds.

    Attributes:
        instructions: the statement: text or JSON.
        criteria: what "true" and "false" mean here, either or both; None for the default wording.
        labels: the words for "false" and "true" that the model reads; None for these two words.
        option_order: `[1, 0]` shows "true" first; None for "false" first.
    """

    instructions: JsonValue
    criteria: Mapping[str, JsonValue] | None = None
    labels: Mapping[str, str] | None = None
    option_order: Sequence[int] | None = None

    def to_laya(self) -> dict[str, Any]:
        """This question in Laya's JSON form."""
        question = _laya("noul", self.instructions, self.criteria, self.option_order)
        if self.labels is not None:
            question["labels"] = self.labels
        return question


AnyQuestion: TypeAlias = Choice | Score | Noul | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """Questions about one state, as a caller writes them.

    Attributes:
        state: what is asked about: text or JSON. A list is a conversation: if it is cut, its end is kept.
        questions: the questions by id, typed or in Laya's JSON form.
        max_len: the row's budget in tokens; None for the checkpoint's.
        head_max_len: the head's budget in tokens; None for the checkpoint's.
        cache: what to do with the answer cache.
    """

    state: JsonValue
    questions: Mapping[QuestionKey, AnyQuestion] = field(default_factory=dict)
    max_len: int | None = None
    head_max_len: int | None = None
    cache: CacheMode = CacheMode.USE

    def to_laya(self) -> dict[str, Any]:
        """This request in Laya's JSON form, the cache mode under `kime`."""
        form: dict[str, Any] = {
            "state": self.state,
            "questions": {
                key: q.to_laya() if isinstance(q, (Choice, Score, Noul)) else q
                for key, q in self.questions.items()
            },
            "kime": {"cache": self.cache.value},
        }
        if self.max_len is not None:
            form["max_len"] = self.max_len
        if self.head_max_len is not None:
            form["head_max_len"] = self.head_max_len
        return form


@dataclass(frozen=True, slots=True)
class Question:
    """A question that is known to be good.

    Attributes:
        key: its id as the caller gave it.
        type: its type.
        instructions: text or JSON.
        labels: a choice's labels as the caller gave them, a noul's two words (false, true), none for a score.
        descriptions: what each option means (None for nothing): a choice's descriptions, a score's levels, a
            noul's two sides (false, true).
        option_order: the option that each slot shows, or None for the options' own order.
    """

    key: QuestionKey
    type: QuestionType
    instructions: JsonValue
    labels: tuple[Label, ...]
    descriptions: tuple[JsonValue, ...]
    option_order: tuple[int, ...] | None = None

    @property
    def id(self) -> str:
        """The key as text, as the wire and the error messages have it."""
        return str(self.key)


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that is known to be good; see `Request` for the attributes."""

    state: JsonValue
    questions: tuple[Question, ...]
    max_len: int | None = None
    head_max_len: int | None = None
    cache: CacheMode = CacheMode.USE


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much a request may hold.

    Attributes:
        questions: questions in a request.
        options: options in a choice.
        levels: levels in a score.
        tokens: tokens in all rows of a request, or in all texts to embed; None for any number.
    """

    questions: int = 256
    options: int = 255
    levels: int = 32
    tokens: int | None = None


def _laya(
    type_word: str, instructions: JsonValue, criteria: Any, option_order: Sequence[int] | None
) -> dict[str, Any]:
    if isinstance(criteria, tuple):
        criteria = list(criteria)
    question: dict[str, Any] = {"type": type_word, "instructions": instructions, "criteria": criteria}
    if option_order is not None:
        question["option_order"] = option_order
    return question
