"""A checked request to rows: render, tokenize, lay out. Never runs on the device's thread."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kime_grpc.core.errors import InvalidError, Problem, TooLongError
from kime_grpc.core.json_text import LongList, check
from kime_grpc.core.layout import Fit, Row, lay_out_head, lay_out_row
from kime_grpc.core.rendering import render_question, render_state
from kime_grpc.core.request import (
    CacheMode,
    CheckedRequest,
    Choice,
    Noul,
    Question,
    QuestionKey,
    Request,
    Score,
)
from kime_grpc.engine.question_cache import QuestionCache, QuestionIds
from kime_grpc.models.model import Model

# What a value with too many parts to count them counts as: the size of the largest message, commonly.
MANY_PARTS = 10_000
MANY_PARTS_BYTES = 4 * 2**20
# What a part that is no text counts as: a number or a bracket, and what separates it from the next.
PART_BYTES = 4


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


def size_of(*values: Any) -> int:
    """About how many bytes of text the model would read of values: JSON, requests or questions.

    Takes no more than two milliseconds, so values with very many parts are not measured.
    """
    size = parts = 0
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            size += len(value)
            continue
        size += PART_BYTES
        inside: tuple[Any, ...] = ()
        if isinstance(value, (list, tuple)):
            parts, inside = parts + len(value), (value,)
        elif isinstance(value, Mapping):
            parts, inside = parts + 2 * len(value), (value, value.values())
        elif isinstance(value, (Choice, Score, Noul)):
            inside = ((value.instructions, value.criteria),)
        elif isinstance(value, Question):
            inside = ((value.instructions, value.labels, value.descriptions),)
        elif isinstance(value, (Request, CheckedRequest)):
            inside = ((value.state, value.questions),)
        if parts > MANY_PARTS:
            return size + MANY_PARTS_BYTES
        for members in inside:
            stack.extend(members)
    return size


def prepare(request: CheckedRequest, model: Model, cache: QuestionCache, scope: str) -> Prepared:
    """Lay a request's questions out as rows for `model`.

    Args:
        request: what is asked; its cache mode holds for `cache` too.
        model: the model.
        cache: the questions whose tokens are known.
        scope: whose entries of the cache may serve it.

    Raises:
        TooLongError: the options of a question do not fit its budget.
    """
    started = time.perf_counter()
    if not request.questions:
        return Prepared(request, (), (), 0, 0.0)
    config, special = model.config, model.tokenizer.special
    max_len = config.max_len if request.max_len is None else request.max_len
    head_max_len = config.head_max_len if request.head_max_len is None else request.head_max_len
    keep_end = isinstance(request.state, (list, tuple, LongList))
    state, state_tokens, questions = _tokenize(request, model, cache, scope, keep_end=keep_end)
    rows, fits = [], []
    for question, tokens in zip(request.questions, questions, strict=True):
        head = lay_out_head(tokens.head, tokens.options, special, head_max_len)
        row, fit = lay_out_row(
            head,
            state,
            special,
            question.type,
            max_len,
            state_tokens=state_tokens,
            keep_end=keep_end,
            parallel=config.parallel,
        )
        if fit.markers < fit.options:
            raise TooLongError(question.id, fit.options, fit.markers, max_len, head_max_len)
        rows.append(row)
        fits.append(fit)
    return Prepared(request, tuple(rows), tuple(fits), state_tokens, time.perf_counter() - started)


def count_tokens(request: CheckedRequest, model: Model) -> TokenCounts:
    """Count a request's tokens."""
    mask = model.tokenizer.special.mask_literal
    rendered = [render_question(question, mask) for question in request.questions]
    texts = [render_state(request.state, mask)]
    for shown in rendered:
        texts += [shown.head, *shown.options]
    counts = iter(model.tokenizer.count(texts))
    return TokenCounts(
        state=next(counts),
        questions={
            question.key: QuestionTokens(next(counts), sum(itertools.islice(counts, len(shown.options))))
            for question, shown in zip(request.questions, rendered, strict=True)
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


def _tokenize(
    request: CheckedRequest, model: Model, cache: QuestionCache, scope: str, *, keep_end: bool
) -> tuple[list[int], int, list[QuestionIds]]:
    """Token ids of the state and of every question; one call of the tokenizer for all that is not known.

    No text gives more ids than a row has room for; the number beside the state's is how many it has in all.
    """
    mask = model.tokenizer.special.mask_literal
    rendered = [render_question(question, mask) for question in request.questions]
    known: list[QuestionIds | None] = [None] * len(rendered)
    if request.cache is CacheMode.USE:
        known = cache.look_up(scope, rendered)
    texts = [render_state(request.state, mask)]
    for question, ids in zip(rendered, known, strict=True):
        if ids is None:
            texts += [question.head, *question.options]
    encoded, counts = model.tokenizer.encode(texts, model.max_row_tokens, keep_first_end=keep_end)
    fresh = iter(encoded)
    state = next(fresh)
    questions = []
    for question, ids in zip(rendered, known, strict=True):
        if ids is None:
            ids = QuestionIds(next(fresh), [next(fresh) for _ in question.options])  # noqa: PLW2901
            if request.cache is not CacheMode.BYPASS:
                cache.keep(scope, question, ids)
        questions.append(ids)
    return state, counts[0], questions
