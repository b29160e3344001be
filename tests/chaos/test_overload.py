"""More than fits at once, for stock clients with the shipped service config and no code of ours."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kime_grpc.client.channel import service_config
from kime_grpc.v1 import decision_service_pb2_grpc
from tests.chaos.conftest import Start
from tests.chaos.faults import slow
from tests.server.messages import request

CALLERS = 64


def shipped() -> list[tuple[str, Any]]:
    return [("grpc.service_config", json.dumps(service_config()))]


@pytest.mark.parametrize(
    "bounds", [{"queue": 4}, {"max_calls": 6}, {"max_bytes_in_flight": 300}], ids=["queue", "calls", "bytes"]
)
async def test_stock_clients_get_through_an_overload(start: Start, bounds: dict[str, int]) -> None:
    service = await start(**bounds)
    # So that what waits takes a while, and yet all of it much less than the callers have.
    service.faults.always(slow(0.03, 0.01))
    async with service.wire.connect(*shipped()) as channel:
        stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)
        calls = [stub.Decide(request(f"The {i}th parcel."), timeout=60) for i in range(CALLERS)]
        responses = await asyncio.gather(*calls)
    assert len(responses) == CALLERS
    assert all(response.answers for response in responses)
    stats, bounded = service.kime.queue_stats(), service.wire.server._bounds
    refused = stats.refused_full + bounded.calls.refused + bounded.bytes.refused
    # Else there was no overload.
    assert refused > 0


async def test_callers_who_keep_coming_get_through_an_overload(start: Start) -> None:
    service = await start(queue=4)
    service.faults.always(slow(0.02, 0.002))
    async with service.wire.connect(*shipped()) as channel:
        stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)

        async def caller(number: int) -> None:
            for turn in range(6):
                response = await stub.Decide(request(f"Parcel {number}.{turn}."), timeout=60)
                assert response.answers

        await asyncio.gather(*[caller(number) for number in range(24)])
    assert service.kime.queue_stats().refused_full > 0


async def test_health_is_answered_while_the_queue_is_full(start: Start) -> None:
    service = await start(queue=4)
    with service.faults.hold():
        calls = [asyncio.ensure_future(service.decide(request("a"), timeout=60))]
        await service.has_begun()
        calls += [asyncio.ensure_future(service.decide(request("b"), timeout=60)) for _ in range(4)]
        await service.has_queued(4)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await service.decide(request("c"), timeout=60)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        health = health_pb2_grpc.HealthStub(service.wire.channel)
        said = await health.Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert said.status == health_pb2.HealthCheckResponse.SERVING
    await asyncio.gather(*calls)


async def test_a_burst_of_calls_is_answered_or_told_why_not(start: Start) -> None:
    service = await start(max_calls=500)
    async with AsyncExitStack() as stack:
        # A pool each, so that each is a connection of its own.
        options = ("grpc.use_local_subchannel_pool", 1)
        channels = [await stack.enter_async_context(service.wire.connect(options)) for _ in range(4)]
        stubs: list[Any] = [decision_service_pb2_grpc.DecisionServiceStub(channel) for channel in channels]
        calls = [stubs[i % 4].Decide(request(str(i)), timeout=60) for i in range(2000)]
        said = Counter([await call.code() for call in calls])
    # None was dropped by the library, as it does when calls come faster than the event loop takes them up.
    assert set(said) <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert said[grpc.StatusCode.OK] >= 500
