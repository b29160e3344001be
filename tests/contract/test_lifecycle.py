"""A server's health, and its end."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kime_grpc.core.errors import BackendError
from kime_grpc.server import lifecycle
from kime_grpc.server.health import Health
from kime_grpc.server.lifecycle import SERVICES, Server
from kime_grpc.server.settings import ServerSettings
from kime_grpc.v1 import decision_service_pb2
from tests.contract.conftest import Serve
from tests.contract.wire import PUSHBACK, Wire, failure
from tests.server.fakes import FakeEngine
from tests.server.messages import choice, item, request

Code = grpc.StatusCode
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def health(wire: Wire) -> Any:
    return health_pb2_grpc.HealthStub(wire.channel)


async def check(wire: Wire, service: str = "") -> int:
    response = await health(wire).Check(health_pb2.HealthCheckRequest(service=service))
    return int(response.status)


def watch(wire: Wire, service: str = "") -> Any:
    return health(wire).Watch(health_pb2.HealthCheckRequest(service=service))


async def see(watching: Any, status: int) -> None:
    """Watch until a status comes."""
    while (await watching.read()).status != status:
        pass


@pytest.mark.parametrize("service", ["", "kime.v1.DecisionService", "kime.v1.ModelService"])
async def test_a_started_server_serves(wire: Wire, service: str) -> None:
    assert await check(wire, service) == SERVING


async def test_an_unknown_service_is_not_found_and_unknown_to_who_watches(wire: Wire) -> None:
    said = await failure_code(health(wire).Check(health_pb2.HealthCheckRequest(service="other")))
    assert said is Code.NOT_FOUND
    assert (await watch(wire, "other").read()).status == UNKNOWN


async def failure_code(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_health_says_not_serving_until_it_is_told_otherwise() -> None:
    state = Health(SERVICES)
    assert not state.is_serving


async def test_a_server_decides_something_before_it_serves(wire: Wire, engine: FakeEngine) -> None:
    assert engine.warm_ups == 1
    assert "MainThread" not in engine.threads


async def test_a_server_whose_engine_cannot_decide_does_not_start(engine: FakeEngine) -> None:
    engine.warm_up_error = BackendError("boom")
    server = Server(engine, ServerSettings(port=0))
    with pytest.raises(BackendError):
        await server.start()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_health_follows_the_engine(wire: Wire, engine: FakeEngine) -> None:
    watching = watch(wire)
    await see(watching, SERVING)
    engine.is_alive = False
    await see(watching, NOT_SERVING)
    engine.is_alive = True
    await see(watching, SERVING)


async def test_who_watches_hears_of_changes_after_another_has_left(wire: Wire, engine: FakeEngine) -> None:
    first, second = watch(wire), watch(wire)
    await see(first, SERVING)
    await see(second, SERVING)
    first.cancel()
    engine.is_alive = False
    await see(second, NOT_SERVING)


async def test_a_second_server_on_the_port_is_an_error_that_names_it(wire: Wire, engine: FakeEngine) -> None:
    with pytest.raises(OSError, match=str(wire.server.port)):
        await Server(engine, ServerSettings(port=wire.server.port)).start()
    assert await check(wire) == SERVING


async def test_a_server_says_where_it_listens(wire: Wire) -> None:
    assert wire.server.address == f"127.0.0.1:{wire.server.port}"


# Stopping


async def test_a_lame_duck_still_serves_and_says_that_it_stops(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(lame_duck_seconds=3600)
    watching = watch(wire)
    await see(watching, SERVING)
    stopping = asyncio.create_task(wire.server.stop())
    await see(watching, NOT_SERVING)
    assert (await wire.decisions.Decide(request())).model == "fake"
    engine.is_alive = True
    assert await check(wire) == NOT_SERVING
    stopping.cancel()
    await asyncio.wait([stopping])


async def test_new_work_is_refused_and_what_is_in_flight_finishes(wire: Wire, engine: FakeEngine) -> None:
    engine.go.clear()
    call = wire.decisions.Decide(request("in flight"))
    stream = wire.decisions.DecideStream()
    await stream.write(item("a"))
    await engine.until(lambda e: e.running == 2)
    stopping = asyncio.create_task(wire.server.stop(lame_duck=False))
    await asyncio.sleep(0)

    for refused in (wire.decisions.Decide(request()), wire.decisions.DecideStream(iter([item("b")]))):
        said = await failure(refused)
        assert (said.code, said.reason) == (Code.UNAVAILABLE, "DRAINING")
        assert (said.headers, said.trailers[PUSHBACK]) == ({}, "1")
    assert not stopping.done()

    engine.go.set()
    assert (await call).model == "fake"
    assert (await stream.read()).HasField("response")
    said = await failure(stream.read())
    assert (said.code, said.reason) == (Code.UNAVAILABLE, "DRAINING")
    await stopping
    assert {str(asked.state) for asked in engine.asked} == {"in flight", "a"}


async def test_a_stream_that_was_read_to_its_end_finishes_well(wire: Wire, engine: FakeEngine) -> None:
    engine.go.clear()
    stream = wire.decisions.DecideStream(iter([item("a")]))
    await engine.until(lambda e: e.running == 1)
    # The half-close is on its way behind the item: one more call on the connection lets it arrive first.
    assert await check(wire) == SERVING
    stopping = asyncio.create_task(wire.server.stop(lame_duck=False))
    await asyncio.sleep(0)
    engine.go.set()
    assert [answer.id async for answer in stream] == ["a"]
    assert await stream.code() is Code.OK
    await stopping


async def test_what_does_not_finish_in_time_is_cut_off(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(grace_seconds=0.05)
    engine.go.clear()
    call = wire.decisions.Decide(request("stuck"))
    stream = wire.decisions.DecideStream(iter([item("stuck too")]))
    await engine.until(lambda e: e.running == 2)
    await wire.server.stop(lame_duck=False)
    assert sorted(engine.cancelled) == ["stuck", "stuck too"]
    for cut_off in (call, stream):
        said = await failure(cut_off)
        assert (said.code, said.reason) == (Code.UNAVAILABLE, "DRAINING")
        assert (said.headers, said.trailers[PUSHBACK]) == ({}, "1")
        assert "RetryInfo" in said.details
    await wire.is_idle()


async def test_a_stream_that_is_cut_off_gives_what_was_ready(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(grace_seconds=0.05)
    stream = wire.decisions.DecideStream()
    await stream.write(item("ready"))
    assert (await stream.read()).HasField("response")
    engine.go.clear()
    await stream.write(item("stuck"))
    await engine.until(lambda e: e.running == 1)
    await wire.server.stop(lame_duck=False)
    said = await failure(stream.read())
    assert (said.code, said.reason, said.trailers[PUSHBACK]) == (Code.UNAVAILABLE, "DRAINING", "1")
    await wire.is_idle()


async def test_every_kind_of_call_is_cut_off_with_a_status(serve: Serve, engine: FakeEngine) -> None:
    wire = await serve(grace_seconds=0.05)
    engine.go.clear()
    calls = [
        *[wire.decisions.Decide(request(f"{i}")) for i in range(50)],
        *[wire.decisions.DecideStream(iter([item(f"{i}-{j}") for j in range(4)])) for i in range(10)],
        wire.decisions.Embed(decision_service_pb2.EmbedRequest(texts=["a"])),
        wire.decisions.CountTokens(decision_service_pb2.CountTokensRequest(state=request().state)),
    ]
    await engine.until(lambda e: e.running == 92)
    await wire.server.stop(lame_duck=False)
    assert [(await failure(call)).reason for call in calls] == ["DRAINING"] * 62
    await wire.is_idle()


async def test_a_client_that_reads_nothing_does_not_hold_up_the_end(
    serve: Serve, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FLUSH_SECONDS", 0.05)
    wire = await serve(grace_seconds=0.05)
    stream = wire.decisions.DecideStream()

    async def write() -> None:
        for i in range(1000):
            message = request(f"{i}", choice(labels=("x" * 1_000_000,)))
            decision = decision_service_pb2.StreamItem(id=f"{i}", request=message)
            await stream.write(decision_service_pb2.DecideStreamRequest(item=decision))

    writer = asyncio.create_task(write())
    await engine.until(lambda e: len(e.asked) >= 10 and e.running == 0)
    await wire.server.stop(lame_duck=False)
    await wire.is_idle()
    writer.cancel()
    await asyncio.wait([writer])


async def test_nobody_who_calls_again_and_again_is_dropped_without_a_word(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kime_grpc.server.in_flight.MOMENT_SECONDS", 0.5)

    async def call_on() -> grpc.StatusCode:
        try:
            while True:
                await wire.decisions.Decide(request())
        except grpc.aio.AioRpcError as error:
            return error.code()

    callers = [asyncio.create_task(call_on()) for _ in range(30)]
    await wire.decisions.Decide(request())
    await wire.server.stop(lame_duck=False)
    assert {await caller for caller in callers} == {Code.UNAVAILABLE}


async def test_who_watches_is_told_and_let_go(wire: Wire) -> None:
    watching = watch(wire)
    await see(watching, SERVING)
    await wire.server.stop(lame_duck=False)
    await see(watching, NOT_SERVING)
    assert await watching.read() is grpc.aio.EOF
    assert await watching.code() is Code.OK


async def test_a_stopped_server_leaves_its_port(wire: Wire, engine: FakeEngine) -> None:
    await wire.server.stop(lame_duck=False)
    again = Server(engine, ServerSettings(port=wire.server.port))
    await again.start()
    await again.stop(lame_duck=False)


async def test_stopping_twice_does_no_harm(wire: Wire) -> None:
    await wire.server.stop(lame_duck=False)
    await wire.server.stop(lame_duck=False)
