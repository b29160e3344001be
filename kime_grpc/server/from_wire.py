"""The contract's messages to checked requests, or to an error with every problem at once.

The rules for a request's parts are in `core.checks`. Here are the walk over the messages, the paths in their
terms, such as `questions[2].score.levels[0]`, and what only a message can get wrong: empty oneofs and unknown
enum values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kime_grpc.core.checks import Checker
from kime_grpc.core.json_text import JsonValue
from kime_grpc.core.request import (
    DEFAULT_NOUL_LABELS,
    CacheMode,
    CheckedRequest,
    Question,
    QuestionType,
    RequestLimits,
)
from kime_grpc.v1 import content_pb2, decision_service_pb2, question_pb2

MAX_ID_BYTES = 128
_MAX_DURATION_SECONDS = 315_576_000_000
_CACHE_MODES = {
    decision_service_pb2.CACHE_MODE_UNSPECIFIED: CacheMode.USE,
    decision_service_pb2.CACHE_MODE_USE: CacheMode.USE,
    decision_service_pb2.CACHE_MODE_BYPASS: CacheMode.BYPASS,
    decision_service_pb2.CACHE_MODE_REFRESH: CacheMode.REFRESH,
}


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options; None stands for the checkpoint's own budgets."""

    max_len: int | None = None
    head_max_len: int | None = None
    cache: CacheMode = CacheMode.USE


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the items of a stream leave out, checked once for all of them."""

    model: str = ""
    questions: tuple[Question, ...] = ()
    options: Options = Options()


NO_DEFAULTS = Defaults()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a request is checked against: the limits, and the longest row that the model takes."""

    limits: RequestLimits
    max_row_tokens: int

    def checker(self) -> Checker:
        """A checker for one request."""
        return Checker(self.limits, self.max_row_tokens)


def read_request(
    message: decision_service_pb2.DecideRequest, rules: Rules, defaults: Defaults = NO_DEFAULTS
) -> CheckedRequest:
    """Check what a unary call or a stream's item asks.

    Raises:
        InvalidError: with every problem.
    """
    checker = rules.checker()
    request = _request(checker, message, defaults)
    checker.finish()
    return request


def read_item(
    item: decision_service_pb2.StreamItem, rules: Rules, defaults: Defaults, *, is_id_taken: bool
) -> CheckedRequest:
    """Check a stream's item; paths inside its request are those of a unary call.

    Args:
        item: the item.
        rules: what it is checked against.
        defaults: what it may leave out.
        is_id_taken: whether an item in flight has its id.

    Raises:
        InvalidError: with every problem.
    """
    checker = rules.checker()
    if not is_well_formed_id(item.id):
        size = len(item.id.encode())
        checker.add("id", "id", f"an item's id has 1 to {MAX_ID_BYTES} bytes, and this one {size}", item.id)
    elif is_id_taken:
        checker.add(
            "id", "duplicate", f"an item with the id {item.id!r} is in flight; name each its own", item.id
        )
    if item.HasField("max_wait") and read_max_wait(item) is None:
        checker.add("max_wait", "range", "a wait is a valid duration from 0 on")
    request = _request(checker, item.request, defaults)
    checker.finish()
    return request


def read_defaults(message: decision_service_pb2.StreamDefaults, rules: Rules) -> Defaults:
    """Check a stream's defaults.

    Raises:
        InvalidError: with every problem, its paths beginning with `defaults.`.
    """
    checker = rules.checker()
    questions = _questions(checker, "defaults.questions", message.questions)
    options = _options(checker, "defaults.options", message.options)
    checker.finish()
    return Defaults(message.model, questions, options)


def read_count(message: decision_service_pb2.CountTokensRequest, rules: Rules) -> CheckedRequest:
    """Check a request to count tokens.

    Raises:
        InvalidError: with every problem.
    """
    checker = rules.checker()
    state = _state(checker, message)
    questions = _questions(checker, "questions", message.questions)
    checker.finish()
    return CheckedRequest(state, questions)


def read_texts(message: decision_service_pb2.EmbedRequest, rules: Rules, max_texts: int) -> list[str]:
    """Check how many texts there are to embed; the engine looks at the texts themselves.

    Raises:
        InvalidError: too many.
    """
    checker = rules.checker()
    count = len(message.texts)
    if count > max_texts:
        checker.add(
            "texts", "too_many", f"{count} texts, and at most {max_texts} are taken; split the request", count
        )
    checker.finish()
    return list(message.texts)


def is_well_formed_id(item_id: str) -> bool:
    """Whether an item's id has the size that it should."""
    return 1 <= len(item_id.encode()) <= MAX_ID_BYTES


def read_max_wait(item: decision_service_pb2.StreamItem) -> float | None:
    """The seconds that an item's caller waits; None where there is no limit, or no valid one."""
    wait = item.max_wait
    is_valid = 0 <= wait.seconds <= _MAX_DURATION_SECONDS and 0 <= wait.nanos < 1_000_000_000
    return wait.seconds + wait.nanos / 1e9 if is_valid and item.HasField("max_wait") else None


def _request(
    checker: Checker, message: decision_service_pb2.DecideRequest, defaults: Defaults
) -> CheckedRequest:
    state = _state(checker, message)
    questions = defaults.questions
    if message.questions:
        questions = _questions(checker, "questions", message.questions)
    options = defaults.options
    if message.HasField("options"):
        options = _options(checker, "options", message.options)
    return CheckedRequest(state, questions, options.max_len, options.head_max_len, options.cache)


def _state(
    checker: Checker, message: decision_service_pb2.DecideRequest | decision_service_pb2.CountTokensRequest
) -> JsonValue:
    if not message.HasField("state"):
        checker.add(
            "state", "missing", "the state is missing; send what the questions are about, text or JSON"
        )
        return None
    value, is_good = _content(checker, "state", message.state)
    # A document that was read strictly needs no second walk.
    if is_good and value is None:
        checker.state("state", None)
    return value


def _content(checker: Checker, path: str, content: content_pb2.Content) -> tuple[JsonValue, bool]:
    """What a content holds, and whether it is good; if it is not, the problems are noted."""
    kind = content.WhichOneof("kind")
    if kind is None:
        checker.add(path, "missing", "neither text nor json is set; set one of them")
        return None, False
    if kind == "text":
        return content.text, True
    before = checker.total
    value = checker.json_document(path, content.json)
    return value, checker.total == before


def _options(checker: Checker, path: str, message: decision_service_pb2.DecideOptions) -> Options:
    max_len, head_max_len = message.max_len or None, message.head_max_len or None
    checker.budget(f"{path}.max_len", max_len)
    checker.budget(f"{path}.head_max_len", head_max_len)
    cache = _CACHE_MODES.get(message.cache_mode)
    if cache is None:
        checker.add(
            f"{path}.cache_mode",
            "enum",
            f"{message.cache_mode} is no cache mode of this version; use use, bypass or refresh",
            message.cache_mode,
        )
    return Options(max_len, head_max_len, cache or CacheMode.USE)


def _questions(
    checker: Checker, path: str, messages: Sequence[question_pb2.Question]
) -> tuple[Question, ...]:
    checker.question_count(path, len(messages))
    if len(messages) > checker.limits.questions:
        return ()
    checker.question_ids((f"{path}[{i}].id", message.id) for i, message in enumerate(messages))
    read = [_question(checker, f"{path}[{i}]", message) for i, message in enumerate(messages)]
    return tuple(question for question in read if question is not None)


def _question(checker: Checker, path: str, message: question_pb2.Question) -> Question | None:
    instructions = None
    if not message.HasField("instructions"):
        checker.instructions(f"{path}.instructions", None)
    else:
        instructions, is_good = _content(checker, f"{path}.instructions", message.instructions)
        if is_good:
            checker.instructions(f"{path}.instructions", instructions)
    kind = message.WhichOneof("kind")
    labels: tuple[str, ...] = ()
    if kind == "choice":
        question_type = QuestionType.CHOICE
        labels, descriptions = _choice(checker, f"{path}.choice", message.choice)
    elif kind == "score":
        question_type = QuestionType.SCORE
        descriptions = _score(checker, f"{path}.score", message.score)
    elif kind == "noul":
        question_type = QuestionType.NOUL
        labels, descriptions = _noul(checker, f"{path}.noul", message.noul)
    else:
        checker.add(
            path, "missing", "none of choice, score and noul is set; set the one that the question is"
        )
        return None
    order = None
    if message.option_order:
        options = {
            QuestionType.CHOICE: len(message.choice.options),
            QuestionType.SCORE: len(message.score.levels),
            QuestionType.NOUL: len(DEFAULT_NOUL_LABELS),
        }[question_type]
        order = checker.option_order(f"{path}.option_order", list(message.option_order), options)
    return Question(message.id, question_type, instructions, labels, descriptions, order)


def _choice(
    checker: Checker, path: str, message: question_pb2.ChoiceQuestion
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    path = f"{path}.options"
    if len(message.options) > checker.limits.options:
        # Too many is one problem; what each of them says is then not looked at.
        checker.labels(path, [(path, "")] * len(message.options))
        return (), ()
    labels = tuple(option.label for option in message.options)
    checker.labels(path, [(f"{path}[{i}].label", label) for i, label in enumerate(labels)])
    return labels, tuple(
        _description(checker, f"{path}[{i}].description", option.description)
        if option.HasField("description")
        else None
        for i, option in enumerate(message.options)
    )


def _score(checker: Checker, path: str, message: question_pb2.ScoreQuestion) -> tuple[Any, ...]:
    path = f"{path}.levels"
    if len(message.levels) > checker.limits.levels:
        # Too many is one problem; what each of them says is then not looked at.
        checker.levels(path, [(path, "")] * len(message.levels))
        return ()
    read = [(f"{path}[{i}]", *_content(checker, f"{path}[{i}]", m)) for i, m in enumerate(message.levels)]
    good = [(level_path, level) for level_path, level, is_good in read if is_good]
    if good or not read:
        checker.levels(path, good)
    return tuple(level for _, level, _ in read)


def _noul(
    checker: Checker, path: str, message: question_pb2.NoulQuestion
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    labels = DEFAULT_NOUL_LABELS
    if message.HasField("labels"):
        words = message.labels
        labels = checker.noul_labels(
            f"{path}.labels", words.false_label, words.true_label, fields=("false_label", "true_label")
        )
    return labels, tuple(
        _description(checker, f"{path}.{side}", getattr(message, side)) if message.HasField(side) else None
        for side in ("false_description", "true_description")
    )


def _description(checker: Checker, path: str, content: content_pb2.Content) -> JsonValue:
    """What a description says; the empty text and JSON's null stand for none."""
    return _content(checker, path, content)[0]
