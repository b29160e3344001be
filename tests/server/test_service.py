from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kime_grpc.core.errors import LateError
from kime_grpc.server import service
from kime_grpc.server.bounds import Bounds
from kime_grpc.server.call import Call
from kime_grpc.server.service import ServiceCore
from kime_grpc.server.settings import ServerSettings
from kime_grpc.v1 import decision_service_pb2, model_service_pb2
from tests.server.fakes import FakeEngine
from tests.server.messages import request


@pytest.fixture
async def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def core(engine: FakeEngine) -> AsyncIterator[ServiceCore]:
    settings = ServerSettings()
    made = ServiceCore(engine, settings, Bounds(settings))
    yield made
    made.close()


async def test_the_caller_s_scope_is_passed_on(core: ServiceCore, engine: FakeEngine) -> None:
    await core.decide(request(), Call("request-1", scope="tenant"))
    assert engine.scopes == ["tenant"]


@pytest.mark.parametrize(
    ("size", "name"), [(10, "MainThread"), (10_000, "kime-serve-small"), (1_000_000, "kime-serve-big")]
)
async def test_only_big_requests_are_read_off_the_loop(
    core: ServiceCore, monkeypatch: pytest.MonkeyPatch, size: int, name: str
) -> None:
    threads: list[str] = []
    read = service.read_request

    def noting(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read(*arguments)

    monkeypatch.setattr(service, "read_request", noting)
    await core.decide(request("x" * size), Call("request-1"))
    assert [thread.rpartition("_")[0] or thread for thread in threads] == [name]


async def test_threads_of_the_service_end_with_it(core: ServiceCore) -> None:
    before = set(threading.enumerate())
    await core.decide(request("x" * 10_000), Call("request-1"))
    own = set(threading.enumerate()) - before
    assert own
    core.close()
    assert not own & set(threading.enumerate())


async def test_a_deadline_is_kept_without_a_transport(core: ServiceCore, engine: FakeEngine) -> None:
    engine.go.clear()
    call = Call("request-1", timeout=0.01)
    embed = decision_service_pb2.EmbedRequest(texts=["a"])
    count = decision_service_pb2.CountTokensRequest(state=request().state)
    for late in (core.decide(request("a"), call), core.embed(embed, call), core.count_tokens(count, call)):
        with pytest.raises(LateError):
            await late
    assert len(engine.cancelled) == 3


async def test_a_deadline_that_has_passed_is_late_at_once(core: ServiceCore, engine: FakeEngine) -> None:
    with pytest.raises(LateError):
        await core.decide(request(), Call("request-1", timeout=0))
    assert engine.asked == []


async def test_a_cancelled_call_is_not_late(core: ServiceCore, engine: FakeEngine) -> None:
    engine.go.clear()
    task = asyncio.create_task(core.decide(request("a"), Call("request-1", timeout=3600)))
    await engine.until(lambda e: e.running == 1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_all_who_ask_at_once_share_a_digest(core: ServiceCore, engine: FakeEngine) -> None:
    call = Call("request-1")
    await asyncio.gather(*[core.list_models(model_service_pb2.ListModelsRequest(), call) for _ in range(5)])
    assert engine.digests == 1


async def test_the_default_length_of_embeddings_is_what_the_model_takes_at_most(
    core: ServiceCore, engine: FakeEngine
) -> None:
    engine.max_row_tokens = 100
    message = decision_service_pb2.EmbedRequest(texts=["x" * 1000])
    assert (await core.embed(message, Call("request-1"))).input_tokens == 100
    engine.max_row_tokens = 4000
    assert (await core.embed(message, Call("request-1"))).input_tokens == 512
