"""What is refused because too much is in flight, through a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kime_grpc import AsyncClient, Choice, Request
from kime_grpc.v1 import decision_service_pb2
from tests.contract.conftest import Serve
from tests.contract.wire import PUSHBACK, Failure, Wire, details_of, failure, reason_of
from tests.server.fakes import FakeEngine
from tests.server.messages import item, request

Code = grpc.StatusCode
SERVING = health_pb2.HealthCheckResponse.SERVING


def is_overload(said: Failure) -> bool:
    """Whether a call was refused as the contract says, and told when to come back."""
    delay = said.details["RetryInfo"].retry_delay
    pushback = int(said.trailers[PUSHBACK])
    return (
        (said.code, said.reason, said.headers) == (Code.RESOURCE_EXHAUSTED, "OVERLOADED", {})
        and pushback > 0
        and delay.ToMilliseconds() == pushback
    )


def stub(channel: grpc.aio.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)


async def test_calls_beyond_their_bound_are_refused_until_there_is_room(
    serve: Serve, engine: FakeEngine
) -> None:
    wire = await serve(max_calls=2)
    engine.go.clear()
    calls = [wire.decisions.Decide(request(state)) for state in "ab"]
    await engine.until(lambda e: e.running == 2)
    embed = decision_service_pb2.EmbedRequest(texts=["a"])
    for refused in (wire.decisions.Decide(request("c")), wire.decisions.Embed(embed)):
        assert is_overload(await failure(refused))
    engine.go.set()
    for call in calls:
        await call
    assert (await wire.decisions.Decide(request("d"))).model == "fake"
    assert len(engine.asked) == 3


async def test_a_caller_is_called_back_within_its_deadline(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(max_calls=1)
    engine.go.clear()
    call = wire.decisions.Decide(request("a"))
    await engine.until(lambda e: e.running == 1)
    for _ in range(200):
        await failure(wire.decisions.Decide(request("b")))
    said = await failure(wire.decisions.Decide(request("c"), timeout=8))
    assert int(said.trailers[PUSHBACK]) <= 2200
    engine.go.set()
    await call


async def test_streams_beyond_their_bound_are_refused_until_there_is_room(
    serve: Serve, engine: FakeEngine
) -> None:
    wire = await serve(max_streams=1)
    stream = wire.decisions.DecideStream()
    await stream.write(item("a"))
    await stream.read()
    assert is_overload(await failure(wire.decisions.DecideStream(iter([item("b")]))))
    await stream.done_writing()
    assert await stream.code() is Code.OK
    await wire.is_idle()
    again = wire.decisions.DecideStream(iter([item("c")]))
    assert [answer.id async for answer in again] == ["c"]


async def test_bytes_beyond_their_bound_are_refused_until_there_is_room(
    serve: Serve, engine: FakeEngine
) -> None:
    wire = await serve(max_bytes_in_flight=150_000)
    engine.go.clear()
    calls = [wire.decisions.Decide(request(state * 70_000)) for state in "ab"]
    await engine.until(lambda e: e.running == 2)
    assert is_overload(await failure(wire.decisions.Decide(request("c" * 70_000))))
    stream = wire.decisions.DecideStream()
    await stream.write(item("c", "c" * 70_000))
    refused = await stream.read()
    assert (refused.id, refused.status.code) == ("c", code_pb2.RESOURCE_EXHAUSTED)
    assert reason_of(refused.status) == "OVERLOADED"
    assert details_of(refused.status)["RetryInfo"].retry_delay.ToMilliseconds() > 0
    engine.go.set()
    for call in calls:
        await call
    await stream.write(item("d", "d" * 70_000))
    assert (await stream.read()).HasField("response")
    await stream.done_writing()
    assert await stream.code() is Code.OK


async def test_a_message_beyond_the_bound_gets_in_when_there_is_nothing_else(serve: Serve) -> None:
    wire = await serve(max_bytes_in_flight=10)
    for _ in range(3):
        assert (await wire.decisions.Decide(request("x" * 1000))).model == "fake"
        await wire.is_idle()


async def test_health_is_not_bounded_and_answers_while_all_else_is_refused(
    serve: Serve, engine: FakeEngine
) -> None:
    wire = await serve(max_calls=1, max_streams=1, max_bytes_in_flight=1)
    engine.go.clear()
    call = wire.decisions.Decide(request("a"))
    stream = wire.decisions.DecideStream()
    await stream.write(item("b"))
    await engine.until(lambda e: e.running == 1)
    assert is_overload(await failure(wire.decisions.Decide(request("c"))))
    asked = health_pb2.HealthCheckRequest()
    watching = [stub(wire.channel).Watch(asked) for _ in range(20)]
    for each in watching:
        assert (await each.read()).status == SERVING
    assert (await stub(wire.channel).Check(asked)).status == SERVING
    engine.go.set()
    await call
    await stream.done_writing()


async def test_cancelled_calls_give_their_places_back(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(max_calls=4, max_bytes_in_flight=100_000)
    for _ in range(10):
        engine.go.clear()
        calls = [wire.decisions.Decide(request("x" * 20_000)) for _ in range(4)]
        await engine.until(lambda e: e.running == 4)
        for call in calls:
            call.cancel()
        await engine.until(lambda e: e.running == 0)
        await wire.is_idle()
        engine.go.set()
        assert (await wire.decisions.Decide(request())).model == "fake"


async def test_a_client_with_the_shipped_config_gets_through(serve: Serve, engine: FakeEngine) -> None:
    wire: Wire = await serve(max_calls=4)
    engine.go.clear()
    question = {"team": Choice("Which team?", ["billing", "sales"])}
    async with AsyncClient(wire.server.address) as client:
        asking = [asyncio.create_task(client.decide(Request(f"{i}", question))) for i in range(24)]
        while wire.server._bounds.calls.refused < 20:  # noqa: ASYNC110 - counts tell nobody
            await asyncio.sleep(0.01)
        engine.go.set()
        answers = await asyncio.gather(*asking)
    assert [answer["team"].choice for answer in answers] == ["billing"] * 24
