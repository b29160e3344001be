"""What `Kime` does on an event loop and what off it, how much of it may wait, what goes past the queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kime_grpc.core.errors import ClosedError, LateError, OverloadedError, TooManyTokensError
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.request import CacheMode, Choice, Noul, Request, RequestLimits
from kime_grpc.engine.kime import ON_LOOP_BYTES, Kime
from kime_grpc.engine.lanes import Lanes
from kime_grpc.engine.preparing import MANY_PARTS, MANY_PARTS_BYTES, size_of

QUESTIONS: dict[Any, Any] = {"urgent": Noul("The message is urgent."), "team": Choice("Which?", ["a", "b"])}
SMALL = Request("I was charged twice.", QUESTIONS)
BIG = Request("I was charged twice. " * 1000, QUESTIONS)


class Tokenizing:
    """Watches a tokenizer: in which threads it is asked, and waits there while `go` is clear."""

    def __init__(self, kime: Kime, patch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self.entered = asyncio.Event()
        self.go = threading.Event()
        self.go.set()
        loop = asyncio.get_running_loop()
        tokenizer = kime._model.tokenizer
        for name in ("encode", "count"):
            patch.setattr(tokenizer, name, self._watched(getattr(tokenizer, name), loop))

    def _watched(self, ask: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.threads.append(threading.current_thread().name)
            loop.call_soon_threadsafe(self.entered.set)
            self.go.wait()
            return ask(*args, **kwargs)

        return watched


@pytest.fixture
def kime(modernbert_checkpoint: Path) -> Iterator[Kime]:
    with Kime.open(modernbert_checkpoint, "cpu:1", answer_cache=100) as kime:
        yield kime


@pytest.fixture
async def tokenizing(kime: Kime, monkeypatch: pytest.MonkeyPatch) -> Any:
    tokenizing = Tokenizing(kime, monkeypatch)
    yield tokenizing
    tokenizing.go.set()


HERE = threading.main_thread().name


async def test_small_requests_are_prepared_on_the_loop(kime: Kime, tokenizing: Tokenizing) -> None:
    for request in (SMALL, SMALL.to_laya(), parse_request(SMALL)):
        await kime.decide_async(request)
        await kime.token_counts_async(request)
    assert set(tokenizing.threads) == {HERE}


@pytest.mark.parametrize(
    "state",
    [
        "word " * ON_LOOP_BYTES,
        {"deep": {"inside": ["word"] * ON_LOOP_BYTES}},
        [[[1] * 500] * 10],
        {"key " * ON_LOOP_BYTES: 1},
    ],
    ids=["text", "nested", "numbers", "key"],
)
async def test_big_requests_are_prepared_off_the_loop(kime: Kime, tokenizing: Tokenizing, state: Any) -> None:
    request = Request(state, QUESTIONS)
    for form in (request, request.to_laya(), parse_request(request)):
        await kime.decide_async(form)
        await kime.token_counts_async(form)
    assert {name.rstrip("0123456789_") for name in tokenizing.threads} == {"kime-prepare-small"}


async def test_a_small_request_passes_a_huge_one(kime: Kime, tokenizing: Tokenizing) -> None:
    tokenizing.go.clear()
    huge = asyncio.ensure_future(kime.decide_async(Request("word " * 100_000, QUESTIONS)))
    await tokenizing.entered.wait()
    assert tokenizing.threads[0].startswith("kime-prepare-big")
    tokenizing.go.set()
    await kime.decide_async(SMALL)
    await huge


async def test_a_caller_who_leaves_takes_the_waiting_text_along(kime: Kime, tokenizing: Tokenizing) -> None:
    huge = Request("word " * 100_000, QUESTIONS)
    tokenizing.go.clear()
    first = asyncio.ensure_future(kime.decide_async(huge))
    await tokenizing.entered.wait()
    held = kime._lanes.bytes_held
    second = asyncio.ensure_future(kime.decide_async(huge))
    await asyncio.sleep(0)
    assert kime._lanes.bytes_held > held
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert kime._lanes.bytes_held == held
    tokenizing.go.set()
    await first
    assert len(tokenizing.threads) == 1


async def test_more_text_than_may_wait_is_refused(kime: Kime, tokenizing: Tokenizing) -> None:
    kime._lanes.close()
    kime._lanes = Lanes("kime-prepare", limit_bytes=30_000)
    tokenizing.go.clear()
    first = asyncio.ensure_future(kime.decide_async(BIG))
    await tokenizing.entered.wait()
    with pytest.raises(OverloadedError):
        await kime.decide_async(BIG)
    with pytest.raises(OverloadedError):
        await kime.token_counts_async(BIG)
    with pytest.raises(OverloadedError):
        await kime.embed_async([str(BIG.state)])
    tokenizing.go.set()
    assert (await first).answers


async def test_a_caller_whose_time_went_by_in_preparing_is_told_so(
    kime: Kime, tokenizing: Tokenizing
) -> None:
    with pytest.raises(LateError):
        await kime.decide_async(BIG, timeout=1e-9)
    assert len(tokenizing.threads) == 1


async def test_what_waits_when_the_engine_is_closed_ends_with_an_error(
    kime: Kime, tokenizing: Tokenizing
) -> None:
    huge = Request("word " * 100_000, QUESTIONS)
    tokenizing.go.clear()
    first, second = (asyncio.ensure_future(kime.decide_async(huge)) for _ in range(2))
    await tokenizing.entered.wait()
    closing = asyncio.ensure_future(asyncio.to_thread(kime.close))
    await asyncio.to_thread(kime._lanes._closed.wait)
    tokenizing.go.set()
    for waiting in (first, second):
        with pytest.raises(ClosedError):
            await waiting
    await closing
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kime-prepare")]


async def test_a_known_answer_comes_while_the_device_is_stuck(
    kime: Kime, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await kime.decide_async(SMALL, scope="one")
    entered, go = threading.Event(), threading.Event()
    forward = kime._model.forward

    def stuck(rows: Any) -> Any:
        entered.set()
        go.wait()
        return forward(rows)

    monkeypatch.setattr(kime._model, "forward", stuck)
    waiting = asyncio.ensure_future(kime.decide_async(SMALL, scope="two"))
    await asyncio.to_thread(entered.wait)
    try:
        again = await kime.decide_async(SMALL, scope="one")
        assert again.answers == known.answers
        assert again.usage.cached == tuple(QUESTIONS)
        assert not waiting.done()
    finally:
        go.set()
    assert (await waiting).answers == known.answers


async def test_counts_and_embeddings_are_bounded_as_decisions_are(modernbert_checkpoint: Path) -> None:
    with Kime.open(modernbert_checkpoint, "cpu:1", limits=RequestLimits(tokens=100)) as kime:
        assert kime.count_tokens(SMALL) <= 100
        for count in (kime.count_tokens, kime.token_counts):
            with pytest.raises(TooManyTokensError) as refusal:
                count(BIG)
            assert refusal.value.limit == 100
            assert refusal.value.tokens > 1000
        with pytest.raises(TooManyTokensError):
            await kime.token_counts_async(BIG)
        with pytest.raises(TooManyTokensError):
            await kime.embed_async([str(BIG.state)])


async def test_texts_to_embed_may_come_from_a_generator_here_too(kime: Kime) -> None:
    texts = ["one", "another"]
    embedded = await kime.embed_async(text for text in texts)
    assert embedded.vectors.tolist() == kime.embed(texts).tolist()


def test_a_size_is_about_that_of_the_text() -> None:
    assert size_of("word") == 4
    assert 8 <= size_of({"key": "value"}) <= 20
    assert size_of(BIG) >= len(str(BIG.state))
    assert size_of(SMALL) < 200
    assert size_of(parse_request(SMALL)) < 200


@pytest.mark.parametrize(
    "value",
    [[0] * (MANY_PARTS + 1), dict.fromkeys(range(MANY_PARTS)), [[[0] * 1000] * (MANY_PARTS // 1000 + 1)]],
    ids=["list", "object", "nested"],
)
def test_a_value_of_very_many_parts_counts_as_a_large_message(value: Any) -> None:
    assert size_of(value) >= MANY_PARTS_BYTES


def test_a_list_that_holds_itself_has_a_size() -> None:
    value: list[Any] = [1]
    value += [value, value]
    assert size_of(value) >= MANY_PARTS_BYTES


def test_bypassing_reads_no_known_answer(kime: Kime) -> None:
    kime.decide(SMALL)
    assert kime.decide(Request(SMALL.state, QUESTIONS, cache=CacheMode.BYPASS)).usage.cached == ()
