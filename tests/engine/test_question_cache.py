"""The cache of questions' tokens: what it keeps and finds, and that nothing it finds changes a bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kime_grpc.core.json_text import LongList, to_text
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.rendering import QuestionTexts
from kime_grpc.core.request import CacheMode, CheckedRequest, Choice, Noul, Request
from kime_grpc.engine.kime import Kime
from kime_grpc.engine.preparing import prepare
from kime_grpc.engine.question_cache import ENTRY_BYTES, LARGEST_SHARE, QuestionCache, QuestionIds
from kime_grpc.models.model import Model
from tests.core.strategies import examples, good_questions, texts

TEXTS = QuestionTexts("noul question: Is it?", (" false: no", " true: yes"))
IDS = QuestionIds([5, 6, 7], [[1], [2, 3]])
STATE = "I was charged twice."
REQUEST = Request(STATE, {"team": Choice("Which team?", ["billing", "sales"]), "urgent": Noul("It is.")})


def plain(ids: QuestionIds | None) -> Any:
    return None if ids is None else (list(ids.head), [list(option) for option in ids.options])


def counts(cache: QuestionCache) -> tuple[int, int, int]:
    stats = cache.stats()
    return stats.entries, stats.hits, stats.misses


@pytest.fixture
def cache() -> QuestionCache:
    return QuestionCache(2**20)


@pytest.fixture
def kime(modernbert_checkpoint: Path) -> Iterator[Kime]:
    with Kime.open(modernbert_checkpoint, "cpu:1", answer_cache=100) as kime:
        yield kime


@pytest.fixture(scope="module")
def model(modernbert_checkpoint: Path) -> Model:
    return Model.open(modernbert_checkpoint, torch.device("cpu"))


def test_what_was_kept_is_found(cache: QuestionCache) -> None:
    assert cache.look_up("", [TEXTS]) == [None]
    cache.keep("", TEXTS, IDS)
    assert plain(cache.look_up("", [TEXTS])[0]) == plain(IDS)
    assert counts(cache) == (1, 1, 1)


@pytest.mark.parametrize(
    "ids",
    [QuestionIds([], []), QuestionIds([], [[], []]), QuestionIds([2**32 - 1], [[]]), QuestionIds([1], [])],
    ids=["nothing", "empty-texts", "largest-id", "no-options"],
)
def test_any_ids_come_back_as_they_were(cache: QuestionCache, ids: QuestionIds) -> None:
    cache.keep("", TEXTS, ids)
    assert plain(cache.look_up("", [TEXTS])[0]) == plain(ids)


def test_scopes_do_not_see_each_others_questions(cache: QuestionCache) -> None:
    cache.keep("one", TEXTS, IDS)
    assert cache.look_up("two", [TEXTS]) == [None]
    assert cache.look_up("one", [TEXTS]) != [None]


@pytest.mark.parametrize(
    "other",
    [
        QuestionTexts(TEXTS.head + TEXTS.options[0], TEXTS.options[1:]),
        QuestionTexts(TEXTS.head, ("".join(TEXTS.options),)),
        QuestionTexts(TEXTS.head, TEXTS.options[::-1]),
    ],
    ids=["head", "options", "order"],
)
def test_texts_that_only_join_alike_are_other_questions(cache: QuestionCache, other: QuestionTexts) -> None:
    cache.keep("", TEXTS, IDS)
    assert cache.look_up("", [other]) == [None]


def question(number: int) -> QuestionTexts:
    return QuestionTexts(f"noul question: {number}", ())


def test_it_holds_no_more_bytes_than_it_may() -> None:
    cache = QuestionCache(20 * (ENTRY_BYTES + 400))
    for number in range(100):
        cache.keep("", question(number), QuestionIds(range(100), []))
        assert cache.stats().size <= cache.stats().capacity
    assert cache.stats().entries > 10
    assert cache.look_up("", [question(99)]) != [None]
    assert cache.look_up("", [question(0)]) == [None]


def test_what_would_take_too_much_of_it_is_not_kept() -> None:
    cache = QuestionCache(LARGEST_SHARE * 10_000)
    cache.keep("", question(1), QuestionIds([1], []))
    cache.keep("", question(2), QuestionIds(range(10_000), []))
    assert cache.stats().entries == 1
    assert cache.look_up("", [question(2)]) == [None]


def test_a_cache_of_no_bytes_keeps_and_counts_nothing() -> None:
    cache = QuestionCache(0)
    cache.keep("", TEXTS, IDS)
    assert cache.look_up("", [TEXTS]) == [None]
    stats = cache.stats()
    assert (stats.capacity, stats.entries, stats.hits, stats.misses, stats.size) == (0, 0, 0, 0, 0)


@examples(60)
@given(
    questions=st.lists(good_questions(), min_size=1, max_size=4),
    states=st.lists(texts, min_size=1, max_size=3),
    tiny=st.integers(1, 20_000),
)
def test_rows_are_the_same_with_a_cold_a_warm_a_tiny_and_no_cache(
    model: Model, questions: list[dict[str, Any]], states: list[str], tiny: int
) -> None:
    form = {f"q{i}": question for i, question in enumerate(questions)}
    requests = [parse_request({"state": state, "questions": form}) for state in states]
    expected = [prepare(request, model, QuestionCache(0), "") for request in requests]
    for cache in (QuestionCache(2**20), QuestionCache(tiny)):
        for _ in range(2):
            for request, plainly in zip(requests, expected, strict=True):
                prepared = prepare(request, model, cache, "")
                assert prepared.rows == plainly.rows
                assert prepared.fits == plainly.fits
                assert prepared.state_tokens == plainly.state_tokens


def watched(kime: Kime, patch: pytest.MonkeyPatch) -> list[list[str]]:
    """What its tokenizer is asked from now on."""
    asked: list[list[str]] = []
    encode = kime._model.tokenizer.encode

    def encode_and_tell(texts: Sequence[str], most: int, *, keep_first_end: bool) -> Any:
        asked.append(list(texts))
        return encode(texts, most, keep_first_end=keep_first_end)

    patch.setattr(kime._model.tokenizer, "encode", encode_and_tell)
    return asked


def test_of_known_questions_only_the_state_is_tokenized(kime: Kime, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = watched(kime, monkeypatch)
    kime.decide(REQUEST)
    kime.decide(Request("Another state.", REQUEST.questions))
    assert len(asked[0]) == 1 + 3 + 3
    assert asked[1] == ["Another state."]


def test_finding_answers_tokenizes_once(kime: Kime, monkeypatch: pytest.MonkeyPatch) -> None:
    kime.decide(REQUEST)
    asked = watched(kime, monkeypatch)
    assert kime.cached(REQUEST) is not None
    assert asked == [[STATE]]


def test_cache_modes_hold_for_questions_too(kime: Kime) -> None:
    def ask(mode: CacheMode) -> tuple[int, int, int]:
        kime.decide(Request(STATE, REQUEST.questions, cache=mode))
        stats = kime.question_cache_stats()
        return stats.entries, stats.hits, stats.misses

    assert ask(CacheMode.BYPASS) == (0, 0, 0)
    assert ask(CacheMode.REFRESH) == (2, 0, 0)
    assert ask(CacheMode.USE) == (2, 2, 0)
    assert ask(CacheMode.BYPASS) == (2, 2, 0)


def test_scopes_hold_for_questions_too(kime: Kime) -> None:
    kime.decide(REQUEST, scope="one")
    kime.decide(REQUEST, scope="two")
    stats = kime.question_cache_stats()
    assert (stats.entries, stats.hits, stats.misses) == (4, 0, 4)


def test_warming_up_and_counting_leave_no_trace(kime: Kime) -> None:
    kime.warm_up()
    kime.count_tokens(REQUEST)
    stats = kime.question_cache_stats()
    assert (stats.entries, stats.hits, stats.misses, stats.size) == (0, 0, 0, 0)


def test_answers_have_the_same_bits_with_known_questions(kime: Kime, modernbert_checkpoint: Path) -> None:
    with Kime.open(modernbert_checkpoint, "cpu:1", question_cache=0) as without:
        for number in range(3):
            request = Request(f"{STATE} {number}", REQUEST.questions)
            assert kime.decide(request).answers == without.decide(request).answers
        assert without.question_cache_stats().capacity == 0
    assert kime.question_cache_stats().hits == 4


def test_a_cache_of_fewer_than_no_bytes_is_refused(modernbert_checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="question_cache"):
        Kime.open(modernbert_checkpoint, question_cache=-1)


def test_a_checked_request_keeps_a_conversations_end_however_it_is_written(model: Model) -> None:
    questions = parse_request(REQUEST).questions
    turns = ["old " * 400, "new " * 400]
    as_list, rendered = (
        prepare(CheckedRequest(state, questions), model, QuestionCache(0), "")
        for state in (turns, LongList(to_text(turns)))
    )
    assert as_list.rows == rendered.rows
