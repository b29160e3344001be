"""Stock clients try again as they are told, with a service config alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

import kime_grpc
from kime_grpc.core import errors
from kime_grpc.v1 import decision_service_pb2_grpc
from tests.contract.wire import Wire
from tests.server.fakes import FakeEngine
from tests.server.messages import request

SHIPPED = (Path(kime_grpc.__file__).parent / "client" / "service_config.json").read_text(encoding="utf-8")


def slow_to_retry() -> str:
    """The shipped config with a back-off that no test would live to see."""
    config = json.loads(SHIPPED)
    for method in config["methodConfig"]:
        method["retryPolicy"] |= {"initialBackoff": "300s", "maxBackoff": "300s"}
        method.pop("timeout", None)
    return json.dumps(config)


async def decide(wire: Wire, config: str, calls: int = 1) -> list[Any]:
    async with wire.connect(("grpc.service_config", config)) as channel:
        stub: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)
        return await asyncio.gather(*[stub.Decide(request(), timeout=60) for _ in range(calls)])


@pytest.mark.parametrize(
    "error",
    [errors.OverloadedError("full", retry_after=0.02), errors.WorkerRestartedError("again")],
    ids=lambda error: error.reason,
)
async def test_a_client_comes_back_when_it_is_told_to_and_not_when_it_would(
    wire: Wire, engine: FakeEngine, error: errors.KimeError
) -> None:
    engine.refusals = [error, error]
    (response,) = await decide(wire, slow_to_retry())
    assert response.model == "fake"
    # What the library says of itself lets the queue know who comes back.
    assert engine.attempts == [0, 1, 2]


async def test_sixty_four_callers_refused_twice_all_get_their_answers(wire: Wire, engine: FakeEngine) -> None:
    engine.refusals = [errors.OverloadedError("full", retry_after=0.01) for _ in range(128)]
    responses = await decide(wire, SHIPPED, calls=64)
    assert len(responses) == 64
    assert len(engine.asked) == 64 + 128


async def test_a_synchronous_client_comes_back_too(wire: Wire, engine: FakeEngine) -> None:
    engine.refusals = [errors.OverloadedError("full", retry_after=0.02)]

    def call() -> str:
        options = (("grpc.service_config", slow_to_retry()),)
        with grpc.insecure_channel(f"127.0.0.1:{wire.server.port}", options) as channel:
            return decision_service_pb2_grpc.DecisionServiceStub(channel).Decide(request(), timeout=60).model

    assert await asyncio.to_thread(call) == "fake"


async def test_what_cannot_be_helped_is_not_tried_again(wire: Wire, engine: FakeEngine) -> None:
    engine.refusals = [errors.BackendError("boom")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await decide(wire, SHIPPED)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert len(engine.asked) == 1
