"""A checked request to rows: render, tokenize, lay out. Never runs on the device's thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kime_grpc.core.errors import InvalidError, Problem, TooLongError
from kime_grpc.core.json_text import check
from kime_grpc.core.layout import Fit, Row, lay_out_head, lay_out_row
from kime_grpc.core.rendering import render_question, render_state
from kime_grpc.core.request import CheckedRequest, Question, QuestionKey
from kime_grpc.models.model import Model


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, ready for the device.

    Attributes:
        request: what was asked.
        rows: one a question.
        fits: what the budget did to each.
        state_tokens: tokens of the state, before any cut.
        seconds: what preparing took.
    """

    request: CheckedRequest
    rows: tuple[Row, ...]
    fits: tuple[Fit, ...]
    state_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """The tokens of one question's head: its type and instructions, and its options."""

    instructions: int
    options: int


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The text tokens of a request before any cut, markers and special tokens left out.

    Attributes:
        state: the state's, once.
        questions: each question's.
    """

    state: int
    questions: Mapping[QuestionKey, QuestionTokens]

    @property
    def total(self) -> int:
        """All of them."""
        return self.state + sum(q.instructions + q.options for q in self.questions.values())


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The token ids of one question's texts."""

    head: list[int]
    options: list[list[int]]


def prepare(request: CheckedRequest, model: Model) -> Prepared:
    """Lay a request's questions out as rows for `model`.

    Raises:
        TooLongError: the options of a question do not fit its budget.
    """
    started = time.perf_counter()
    if not request.questions:
        return Prepared(request, (), (), 0, 0.0)
    config, special = model.config, model.tokenizer.special
    max_len = config.max_len if request.max_len is None else request.max_len
    head_max_len = config.head_max_len if request.head_max_len is None else request.head_max_len
    state, questions = _tokenize(request, model)
    rows, fits = [], []
    for question, tokens in zip(request.questions, questions, strict=True):
        head = lay_out_head(tokens.head, tokens.options, special, head_max_len)
        row, fit = lay_out_row(
            head,
            state,
            special,
            question.type,
            max_len,
            keep_end=isinstance(request.state, (list, tuple)),
            parallel=config.parallel,
        )
        if fit.markers < fit.options:
            raise TooLongError(question.id, fit.options, fit.markers, max_len, head_max_len)
        rows.append(row)
        fits.append(fit)
    return Prepared(request, tuple(rows), tuple(fits), len(state), time.perf_counter() - started)


def count_tokens(request: CheckedRequest, model: Model) -> TokenCounts:
    """Count a request's tokens."""
    state, questions = _tokenize(request, model)
    return TokenCounts(
        state=len(state),
        questions={
            question.key: QuestionTokens(len(tokens.head), sum(map(len, tokens.options)))
            for question, tokens in zip(request.questions, questions, strict=True)
        },
    )


def prepare_texts(texts: Iterable[Any], max_length: Any, model: Model) -> tuple[Row, ...]:
    """Rows without markers, for embedding.

    Args:
        texts: what to embed.
        max_length: how many tokens of each are read, special tokens included.
        model: the model.

    Raises:
        InvalidError: a text that is none, or a length that the model does not take.
    """
    problems = []
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        problems.append(Problem("texts", "type", "send a list of texts, also for a single one", texts))
    else:
        texts = list(texts)  # They are read twice, and a generator gives its own once.
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                problems.append(Problem(f"texts[{i}]", "type", "only texts can be embedded", text))
            else:
                problems += [Problem(f"texts[{i}]", f.kind, f.message, text) for f in check(text)]
    least = max(1, model.tokenizer.special_count)
    if not isinstance(max_length, int) or isinstance(max_length, bool):
        problems.append(Problem("max_length", "type", "a length is a whole number of tokens", max_length))
    elif not least <= max_length <= model.max_row_tokens:
        message = f"this model reads {least} to {model.max_row_tokens} tokens of a text"
        problems.append(Problem("max_length", "range", message, max_length))
    if problems:
        raise InvalidError(problems)
    return tuple(Row(tuple(ids)) for ids in model.tokenizer.encode_with_special(texts, max_length))


def _tokenize(request: CheckedRequest, model: Model) -> tuple[list[int], list[_Tokens]]:
    """Token ids of the state and of every question, in one call of the tokenizer."""
    mask = model.tokenizer.special.mask_literal
    texts = [render_state(request.state, mask)]
    for question in request.questions:
        rendered = render_question(question, mask)
        texts += [rendered.head, *rendered.options]
    ids = iter(model.tokenizer.encode(texts))
    state = next(ids)
    return state, [_take(ids, question) for question in request.questions]


def _take(ids: Iterator[list[int]], question: Question) -> _Tokens:
    return _Tokens(head=next(ids), options=[next(ids) for _ in question.descriptions])
