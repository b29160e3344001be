"""`Kime` on a small random checkpoint: one engine behind every way of asking."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kime_grpc.core.errors import (
    ClosedError,
    InvalidError,
    LateError,
    NotFoundError,
    OverloadedError,
    TooLongError,
    TooManyTokensError,
    UnsupportedError,
)
from kime_grpc.core.request import CacheMode, Choice, Noul, Request, RequestLimits, Score
from kime_grpc.engine import asking, assembling
from kime_grpc.engine import kime as kime_module
from kime_grpc.engine.kime import Kime

STATE = "I was charged twice for March. Please refund the duplicate today or we cancel."
QUESTIONS: dict[Any, Any] = {
    "team": Choice("Which team?", {"billing": "payments", "technical": None, "sales": ""}),
    "mood": Score("How annoyed?", ["calm", {"feeling": "annoyed"}, "furious"]),
    "urgent": Noul("The message is urgent."),
}
REQUEST = Request(STATE, QUESTIONS)


@pytest.fixture(scope="module")
def kime(modernbert_checkpoint: Path) -> Iterator[Kime]:
    with Kime.open(modernbert_checkpoint, "cpu:2") as kime:
        yield kime


@pytest.fixture
def caching(modernbert_checkpoint: Path) -> Iterator[Kime]:
    with Kime.open(modernbert_checkpoint, "cpu:2", answer_cache=100) as kime:
        yield kime


def without_timing(response: Any) -> tuple[Any, ...]:
    return response.model, response.calibration_id, response.answers, response.usage


def many_requests(count: int) -> list[Request]:
    choose = random.Random(7)  # noqa: S311 - no secret
    return [
        Request(
            " ".join(choose.choices(STATE.split(), k=choose.randint(1, 120))),
            dict(choose.sample(list(QUESTIONS.items()), k=choose.randint(1, 3))),
        )
        for _ in range(count)
    ]


def test_a_typed_request_and_its_dict_get_the_same_answers(kime: Kime) -> None:
    assert without_timing(kime.decide(REQUEST)) == without_timing(kime.decide(REQUEST.to_laya()))


def test_answers_come_by_the_callers_own_ids_in_order(kime: Kime) -> None:
    response = kime.decide({"state": STATE, "questions": {7: {"type": "noul", "instructions": "Is it?"}}})
    assert list(response.answers) == [7]
    assert list(kime.decide(REQUEST).answers) == list(QUESTIONS)


def test_numeric_labels_stay_numbers(kime: Kime) -> None:
    answer = kime.decide(Request(STATE, {"q": Choice("Pick", [1, 2.5, "three"])}))["q"]
    assert answer.labels == (1, 2.5, "three")
    assert list(answer.to_laya()["probabilities"]) == [1, 2.5, "three"]


def test_probabilities_sum_to_one(kime: Kime) -> None:
    for answer in kime.decide(REQUEST).answers.values():
        assert math.isclose(sum(answer.probabilities), 1.0, abs_tol=1e-6)


def test_no_questions_give_no_answers_and_ask_no_device(kime: Kime) -> None:
    before = kime.queue_stats().batches
    response = kime.decide(Request(STATE))
    assert (response.answers, response.usage.input_tokens, response.usage.state_tokens) == ({}, 0, 0)
    assert response.to_laya()["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert kime.queue_stats().batches == before


def test_a_batch_gives_what_single_requests_give_to_the_last_bit(kime: Kime) -> None:
    requests = many_requests(24)
    together = kime.decide_batch(requests)
    for request, response in zip(requests, together, strict=True):
        assert without_timing(kime.decide(request)) == without_timing(response)


async def test_concurrent_callers_get_what_each_gets_alone(kime: Kime) -> None:
    requests = many_requests(40)
    alone = [kime.decide(request) for request in requests]
    crowd = await asyncio.gather(*(kime.decide_async(request) for request in requests))
    assert [without_timing(r) for r in crowd] == [without_timing(r) for r in alone]


def test_one_bad_request_fails_the_batch_with_its_problems(kime: Kime) -> None:
    with pytest.raises(InvalidError, match="instructions"):
        kime.decide_batch([REQUEST, {"state": STATE, "questions": {"q": {"type": "noul"}}}])


def test_a_timed_batch_says_where_the_time_went(kime: Kime) -> None:
    long = Request("word " * 2000, {"q": Noul("Is it?")})
    responses, timing = kime.decide_batch_timed([REQUEST, long])
    assert timing.batches >= 1
    assert timing.device > 0
    assert timing.tokenize > 0
    assert timing.truncated == 1
    assert timing.cut_tokens == responses[1].usage.dropped["q"] > 0
    assert timing.cached == 0


def test_options_that_do_not_fit_are_named(kime: Kime) -> None:
    request = Request(STATE, {"pick": Choice("Pick", [f"option {i}" for i in range(200)])})
    with pytest.raises(TooLongError) as refusal:
        kime.decide(request)
    assert (refusal.value.question_id, refusal.value.options) == ("pick", 200)
    assert 0 < refusal.value.fit < 200


def test_limits_are_the_callers_to_choose(modernbert_checkpoint: Path) -> None:
    limits = RequestLimits(questions=2, options=2, levels=2, tokens=50)
    with Kime.open(modernbert_checkpoint, "cpu:1", limits=limits) as kime:
        with pytest.raises(InvalidError) as refusal:
            kime.decide(REQUEST)
        assert {p.kind for p in refusal.value.problems} == {"too_many"}
        with pytest.raises(TooManyTokensError) as too_many:
            kime.decide(Request("word " * 100, {"q": Noul("Is it?")}))
        assert too_many.value.limit == 50
        assert too_many.value.tokens > 50
        with pytest.raises(TooManyTokensError):
            kime.embed(["word " * 100])


def test_the_answer_cache_gives_the_same_bits_and_counts(caching: Kime) -> None:
    cold, warm = caching.decide(REQUEST), caching.decide(REQUEST)
    assert warm.answers == cold.answers
    assert (cold.usage.cached, warm.usage.cached) == ((), tuple(QUESTIONS))
    assert (warm.timing.batches, warm.timing.device) == (0, 0.0)
    stats = caching.cache_stats()
    assert (stats.capacity, stats.entries, stats.hits, stats.misses) == (100, 3, 3, 3)


def test_a_cached_answer_carries_the_labels_at_hand(caching: Kime) -> None:
    caching.decide(Request(STATE, {"q": Choice("Pick", ["1", "2"])}))
    again = caching.decide(Request(STATE, {"other": Choice("Pick", [1, 2])}))
    assert again.usage.cached == ("other",)
    assert again["other"].labels == (1, 2)


def test_cache_modes(caching: Kime) -> None:
    def ask(mode: CacheMode) -> tuple[int, int]:
        caching.decide(Request(STATE, QUESTIONS, cache=mode))
        stats = caching.cache_stats()
        return stats.entries, stats.hits

    assert ask(CacheMode.BYPASS) == (0, 0)
    assert ask(CacheMode.REFRESH) == (3, 0)
    assert ask(CacheMode.USE) == (3, 3)
    assert ask(CacheMode.REFRESH) == (3, 3)


def test_scopes_do_not_see_each_others_answers(caching: Kime) -> None:
    caching.decide(REQUEST, scope="one")
    assert caching.decide(REQUEST, scope="two").usage.cached == ()
    assert caching.cached(REQUEST, scope="one") is not None
    assert caching.cached(REQUEST, scope="three") is None


def test_cached_finds_without_the_queue(caching: Kime) -> None:
    assert caching.cached(REQUEST) is None
    decided = caching.decide(REQUEST)
    batches = caching.queue_stats().batches
    found = caching.cached(REQUEST)
    assert found is not None
    assert found.answers == decided.answers
    assert caching.queue_stats().batches == batches


@pytest.mark.parametrize(
    "request_",
    [
        Request(STATE),
        Request(STATE, QUESTIONS, cache=CacheMode.BYPASS),
        Request(STATE, QUESTIONS, cache=CacheMode.REFRESH),
        {"state": None, "questions": {}},
        Request(STATE, {"q": Choice("Pick", [f"option {i}" for i in range(200)])}),
    ],
)
def test_cached_counts_nothing_for_what_it_does_not_serve(caching: Kime, request_: Any) -> None:
    assert caching.cached(request_) is None
    stats = caching.cache_stats()
    assert (stats.hits, stats.misses) == (0, 0)


def test_a_cache_that_is_off_counts_nothing(kime: Kime) -> None:
    kime.decide(REQUEST)
    kime.decide(REQUEST)
    stats = kime.cache_stats()
    assert (stats.capacity, stats.entries, stats.hits, stats.misses) == (0, 0, 0, 0)


def test_token_counts_leave_out_markers_specials_and_cuts(kime: Kime) -> None:
    counts = kime.token_counts(Request("word " * 2000, QUESTIONS))
    assert counts.state >= 2000
    assert list(counts.questions) == list(QUESTIONS)
    assert kime.count_tokens(Request("word " * 2000, QUESTIONS)) == counts.total
    assert kime.count_tokens(Request("", {})) == 0


def test_embeddings_do_not_depend_on_company(kime: Kime) -> None:
    texts = ["", "refund", STATE * 5, "naïve café 返金"]
    together = kime.embed(texts)
    assert together.dtype == np.float32
    assert together.shape[0] == 4
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(kime.embed([text])[0], vector)


def test_embedding_and_deciding_share_batches(kime: Kime) -> None:
    async def both() -> Any:
        return await asyncio.gather(kime.embed_async([STATE]), kime.decide_async(REQUEST))

    embedded, decided = asyncio.run(both())
    assert np.array_equal(embedded.vectors, kime.embed([STATE]))
    assert embedded.input_tokens > 0
    assert without_timing(decided) == without_timing(kime.decide(REQUEST))


def test_the_shortest_embedding_reads_special_tokens_only(kime: Kime) -> None:
    assert np.array_equal(kime.embed([STATE], 2), kime.embed(["another text"], 2))
    assert not np.array_equal(kime.embed([STATE], 3), kime.embed(["another text"], 3))


def test_embedding_nothing_gives_nothing(kime: Kime) -> None:
    assert kime.embed([]).shape == (0, kime.embed([""]).shape[1])


def test_texts_to_embed_may_come_from_a_generator(kime: Kime) -> None:
    texts = [STATE, "another text"]
    assert np.array_equal(kime.embed(text for text in texts), kime.embed(texts))


@pytest.mark.parametrize("texts", ["a text alone", [1], [None], ["half \ud800"], None, 7])
def test_what_is_no_text_is_not_embedded(kime: Kime, texts: Any) -> None:
    with pytest.raises(InvalidError, match="texts"):
        kime.embed(texts)


@pytest.mark.parametrize("max_length", [0, 1, -3, 10**9, True, 2.5])
def test_an_embedding_length_that_the_model_does_not_take_is_refused(kime: Kime, max_length: Any) -> None:
    with pytest.raises(InvalidError, match="max_length"):
        kime.embed([STATE], max_length)


@pytest.mark.parametrize(("count", "name"), [(2, "MainThread"), (60, "kime-prepare-small")])
async def test_only_many_answers_are_made_off_the_loop(
    kime: Kime, monkeypatch: pytest.MonkeyPatch, count: int, name: str
) -> None:
    threads = set()

    def noting(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name.rpartition("_")[0] or threading.current_thread().name)
        return assembling.answer(*arguments)

    monkeypatch.setattr(asking, "answer", noting)
    request = Request("text", {f"so{i}": Noul(f"It is {i}.") for i in range(count)})
    assert len((await kime.decide_async(request)).answers) == count
    assert threads == {name}


async def test_an_answer_is_not_thrown_away_because_much_waits_to_be_read(
    kime: Kime, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("text", {f"so{i}": Noul(f"It is {i}.") for i in range(60)})

    async def full_after_reading(_: Any, __: int, work: Any, *arguments: Any) -> Any:
        if work == kime._asking.respond:
            raise OverloadedError("full", retry_after=1)
        return work(*arguments)

    monkeypatch.setattr(kime_module, "off_loop", full_after_reading)
    assert len((await kime.decide_async(request)).answers) == 60


async def test_a_caller_who_no_longer_waits_is_told_so(kime: Kime) -> None:
    with pytest.raises(LateError):
        await kime.decide_async(REQUEST, timeout=0.0)


def test_a_closed_engine_refuses(modernbert_checkpoint: Path) -> None:
    kime = Kime.open(modernbert_checkpoint, "cpu:1")
    assert kime.is_alive
    kime.close()
    assert not kime.is_alive
    with pytest.raises(ClosedError):
        kime.decide(REQUEST)


def test_what_it_is(kime: Kime, modernbert_checkpoint: Path) -> None:
    assert kime.model_id == modernbert_checkpoint.name
    assert kime.device == "cpu, 2 threads, f32"
    assert kime.family == "modernbert"
    assert kime.max_row_tokens >= kime.max_len > kime.head_max_len
    assert kime.memory().weights > 0
    assert kime.digest().startswith("sha256:")


def test_plans_grow_with_what_was_run(modernbert_checkpoint: Path) -> None:
    with Kime.open(modernbert_checkpoint, "cpu:1") as kime:
        before = kime.memory().plans
        kime.decide(REQUEST)
        assert kime.memory().plans > before


def test_preloading_leaves_the_cache_empty(modernbert_checkpoint: Path) -> None:
    with Kime.open(modernbert_checkpoint, "cpu:1", preload=True, answer_cache=10) as kime:
        assert kime.queue_stats().batches > 0
        assert kime.cache_stats().entries == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"model": "hf://nobody/nothing"}, NotFoundError),
        ({"device": "ane"}, UnsupportedError),
        ({"device": "cuda:99"}, UnsupportedError),
        ({"precision": "int8"}, UnsupportedError),
        ({"precision": "bf16"}, UnsupportedError),
        ({"answer_cache": -1}, ValueError),
    ],
)
def test_what_cannot_be_opened_says_why(
    modernbert_checkpoint: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Kime.open(**({"model": modernbert_checkpoint} | options))


def test_replaced_temperatures_are_named_once_at_load(
    modernbert_checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Kime.open(modernbert_checkpoint, "cpu:1") as kime:
        kime.decide(REQUEST)
        kime.decide(REQUEST)
    assert len(caplog.records) == len(kime.calibration.replaced)


def test_a_conversation_keeps_its_end_and_anything_else_its_start(kime: Kime) -> None:
    questions = {"q": Noul("Is it?")}
    turns = ["old " * 200, "new " * 200]
    as_list, as_tuple = (kime.decide(Request(state, questions)) for state in (turns, tuple(turns)))
    assert as_list.answers == as_tuple.answers
    assert as_list.answers != kime.decide(Request(str(turns), questions)).answers
