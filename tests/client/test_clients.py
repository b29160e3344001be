"""Both clients through a real socket, against a server with made-up answers."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import grpc
import pytest

from kime_grpc import AsyncClient, CallError, Choice, Client, Noul, Request, Score
from kime_grpc.core.errors import ClosedError
from kime_grpc.core.request import CacheMode
from tests.client.fake import Server, info, refuse

QUESTIONS = {"team": Choice("Which team?", ["billing", "sales"]), "urgent": Noul("It is urgent.")}


def test_a_decision_gives_a_response(client: Client) -> None:
    response = client.decide("I was charged twice.", QUESTIONS)
    assert response["team"].to_laya()["choice"] == "sales"
    assert response["urgent"].to_laya()["noul"] == 0.5
    assert (response.model, response.revision, response.usage.input_tokens) == ("fake", "r1", 7)


async def test_an_async_decision_gives_a_response(async_client: AsyncClient) -> None:
    response = await async_client.decide("I was charged twice.", QUESTIONS)
    assert response["team"].to_laya()["choice"] == "sales"


def test_a_whole_request_is_taken_too(client: Client, server: Server) -> None:
    client.decide(Request("text", QUESTIONS, max_len=99, head_max_len=50, cache=CacheMode.BYPASS))
    options: Any = server.fake.seen[0]
    assert (options.options.max_len, options.options.head_max_len, options.options.cache_mode) == (99, 50, 2)


def test_a_request_beside_arguments_of_its_own_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="leave the arguments out"):
        client.decide(Request("text", QUESTIONS), max_len=99)


def test_a_state_without_questions_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="questions are missing"):
        client.decide("text")


def test_the_answers_have_the_callers_own_ids_and_labels(client: Client) -> None:
    response = client.decide("text", {7: Choice("Which?", [1, 2.5, False])})
    assert response[7].to_laya()["probabilities"] == {1: 0.3333, 2.5: 0.3333, False: 0.3333}
    assert response[7].to_laya()["choice"] is False


def test_a_caller_names_the_model(client: Client, server: Server) -> None:
    client.decide("text", QUESTIONS, model="other")
    client.embed(["text"], model="other")
    client.count_tokens("text", QUESTIONS, model="other")
    seen: list[Any] = server.fake.seen
    assert [message.model for message in seen] == ["other"] * 3


def test_embeddings_are_tuples_of_floats(client: Client, server: Server) -> None:
    assert client.embed(["", "four"], 16, unit_norm=True) == [(0.0, 0.5), (4.0, 0.5)]
    seen: Any = server.fake.seen[0]
    assert (seen.max_length, seen.unit_norm) == (16, True)


def test_texts_to_embed_may_come_from_a_generator(client: Client) -> None:
    assert len(client.embed(text for text in ("", "four"))) == 2


async def test_async_embeddings_are_the_same(async_client: AsyncClient) -> None:
    assert await async_client.embed(["", "four"]) == [(0.0, 0.5), (4.0, 0.5)]


def test_token_counts_are_by_question(client: Client) -> None:
    counts = client.count_tokens("text", {"a": Noul("So."), 2: Noul("Not so.")})
    assert (counts.total, counts.state, list(counts.questions)) == (15, 3, ["a", 2])
    assert counts.questions["a"].instructions == 4
    assert counts.questions["a"].options == 2


async def test_async_token_counts_are_the_same(async_client: AsyncClient) -> None:
    assert (await async_client.count_tokens("text", {"a": Noul("So.")})).total == 9


def test_models_say_what_they_are(client: Client) -> None:
    (listed,) = client.models()
    assert listed == client.model()
    assert (listed.id, listed.is_default, listed.limits.max_len) == ("fake", True, 384)
    assert listed.features == ("decide", "embed")


async def test_async_models_say_the_same(async_client: AsyncClient) -> None:
    assert await async_client.models() == (await async_client.model("fake"),)


def test_a_bad_request_never_reaches_the_network(client: Client, server: Server) -> None:
    with pytest.raises(CallError) as caught:
        client.decide("text", {"a": Score("How?", []), "b": {"type": "choice", "instructions": ""}})
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.reason == "INVALID"
    assert [v.path for v in caught.value.violations] == [
        'questions["a"].criteria',
        'questions["b"].instructions',
        'questions["b"].criteria',
    ]
    assert server.fake.seen == []


def test_how_much_is_too_much_is_for_the_server_to_say(client: Client) -> None:
    many = {str(i): Noul("So.") for i in range(300)}
    assert len(client.decide("text", many).answers) == 300


@pytest.mark.parametrize("budget", [0, -1, True, 1.5, 2**32])
def test_a_budget_that_does_not_fit_the_contract_is_refused(client: Client, budget: Any) -> None:
    with pytest.raises(CallError) as caught:
        client.decide("text", QUESTIONS, max_len=budget)
    assert [v.path for v in caught.value.violations] == ["max_len"]


@pytest.mark.parametrize("texts", ["one text", ["good", 7], ["\ud800"], None, 7])
def test_texts_that_are_none_are_refused(client: Client, texts: Any) -> None:
    with pytest.raises(CallError) as caught:
        client.embed(texts)
    assert caught.value.violations


def test_a_model_name_that_is_none_is_refused(client: Client) -> None:
    bad: Any = 7
    with pytest.raises(CallError) as caught:
        client.decide("text", QUESTIONS, model=bad)
    assert [v.path for v in caught.value.violations] == ["model"]


def test_a_refusal_is_a_call_error(client: Client, server: Server) -> None:
    server.fake.on_decide = lambda _, context: refuse(
        context,
        grpc.StatusCode.NOT_FOUND,
        "no such model",
        info("NOT_FOUND", models="a, b"),
        request_id="r-7",
    )
    with pytest.raises(CallError, match="no such model") as caught:
        client.decide("text", QUESTIONS)
    assert (caught.value.reason, caught.value.request_id) == ("NOT_FOUND", "r-7")
    assert caught.value.metadata == {"models": "a, b"}


async def test_an_async_refusal_is_a_call_error(async_client: AsyncClient, server: Server) -> None:
    server.fake.on_decide = lambda _, context: refuse(
        context, grpc.StatusCode.NOT_FOUND, "no such model", info("NOT_FOUND"), request_id="r-7"
    )
    with pytest.raises(CallError, match="no such model") as caught:
        await async_client.decide("text", QUESTIONS)
    assert (caught.value.reason, caught.value.request_id) == ("NOT_FOUND", "r-7")


def test_a_timeout_is_a_deadline_at_the_server(client: Client, server: Server) -> None:
    def wait(_: object, context: grpc.ServicerContext) -> None:
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait(20)

    server.fake.on_decide = wait
    with pytest.raises(CallError) as caught:
        client.decide("text", QUESTIONS, timeout=0.2)
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_timeout_longer_than_the_service_configs_is_kept(client: Client, server: Server) -> None:
    client.decide("text", QUESTIONS, timeout=1000)
    (remaining,) = server.fake.time_remaining
    assert remaining is not None
    assert remaining > 900


def test_an_infinite_timeout_sets_no_deadline(client: Client) -> None:
    assert client.decide("text", QUESTIONS, timeout=math.inf).answers


@pytest.mark.parametrize("timeout", [math.nan, 1e12])
def test_a_timeout_that_grpc_cannot_count_is_refused(client: Client, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        client.decide("text", QUESTIONS, timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        client.decide_stream([], timeout=timeout)


def test_a_client_without_timeout_sets_no_deadline(server: Server) -> None:
    with Client(server.target, timeout=None) as client:
        client.decide("text", QUESTIONS)
    (remaining,) = server.fake.time_remaining
    assert remaining is None or remaining > 1e6


def test_the_callers_request_id_travels(client: Client, server: Server) -> None:
    client.decide("text", QUESTIONS, request_id="mine-1")
    assert server.fake.metadata[0]["x-request-id"] == "mine-1"


@pytest.mark.parametrize("request_id", ["", "two words", "x" * 129, "ü"])
def test_a_request_id_that_no_server_takes_is_refused(client: Client, request_id: str) -> None:
    with pytest.raises(ValueError, match="1 to 128 characters"):
        client.decide("text", QUESTIONS, request_id=request_id)


def test_a_token_travels_on_every_call(server: Server) -> None:
    with Client(server.target, token="secret") as client:
        client.decide("text", QUESTIONS)
        list(client.decide_stream([(1, Request("text", QUESTIONS))]))
    assert [seen["authorization"] for seen in server.fake.metadata] == ["Bearer secret"] * 2


async def test_an_async_token_travels_on_every_call(server: Server) -> None:
    async with AsyncClient(server.target, token="secret") as client:
        await client.decide("text", QUESTIONS)
        _ = [result async for result in client.decide_stream([(1, Request("text", QUESTIONS))])]
    assert [seen["authorization"] for seen in server.fake.metadata] == ["Bearer secret"] * 2


def test_a_closed_client_says_so(client: Client) -> None:
    client.close()
    with pytest.raises(ClosedError, match="closed"):
        client.decide("text", QUESTIONS)
    with pytest.raises(ClosedError, match="closed"):
        client.decide_stream([])


async def test_a_closed_async_client_says_so(async_client: AsyncClient) -> None:
    await async_client.close()
    with pytest.raises(ClosedError, match="closed"):
        await async_client.decide("text", QUESTIONS)


def test_an_async_client_may_be_made_before_its_loop(server: Server) -> None:
    client = AsyncClient(server.target)

    async def use() -> str:
        async with client:
            return (await client.decide("text", QUESTIONS)).model

    assert asyncio.run(use()) == "fake"


async def test_cancelling_an_async_call_cancels_it_at_the_server(
    async_client: AsyncClient, server: Server
) -> None:
    arrived, gone = threading.Event(), threading.Event()

    def wait(_: object, context: grpc.ServicerContext) -> None:
        context.add_callback(gone.set)
        arrived.set()
        gone.wait(20)

    server.fake.on_decide = wait
    call = asyncio.create_task(async_client.decide("text", QUESTIONS))
    await asyncio.to_thread(arrived.wait, 20)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(gone.wait, 20)
