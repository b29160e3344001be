"""The page of metrics, through HTTP."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import urllib.request

import pytest

from kime_grpc.engine.answer_cache import CacheStats
from kime_grpc.engine.reports import QueueStats
from kime_grpc.server.lifecycle import Server
from kime_grpc.server.settings import ServerSettings
from tests.contract.conftest import Serve
from tests.contract.wire import failure
from tests.server.fakes import FakeEngine
from tests.server.messages import item, request


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def read(port: int) -> dict[str, float]:
    """The samples of the page, by name and labels."""

    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            return str(response.read().decode())

    page = await asyncio.to_thread(get)
    return {name: float(value) for name, value in re.findall(r"^([^#].*) (\S+)$", page, re.MULTILINE)}


async def test_the_engine_s_counts_are_on_the_page(serve: Serve, engine: FakeEngine, port: int) -> None:
    engine.queue = QueueStats(
        waiting_items=1,
        waiting_tokens=2,
        running_rows=3,
        batch_budget=4,
        batches=5,
        batch_rows=6,
        batch_tokens=7,
        cancelled=8,
        late=9,
        refused_full=10,
        refused_late=11,
        failed=12,
        split=13,
        restarts=14,
    )
    engine.answer_cache = CacheStats(capacity=100, entries=15, hits=16, misses=17)
    engine.question_cache = CacheStats(capacity=100, entries=18, hits=19, misses=20)
    await serve(metrics_port=port)
    found = await read(port)
    expected = {
        "kime_queue_items": 1,
        "kime_queue_tokens": 2,
        "kime_running_rows": 3,
        "kime_batch_budget_tokens": 4,
        "kime_batches_total": 5,
        "kime_batch_rows_total": 6,
        "kime_batch_tokens_total": 7,
        'kime_dropped_items_total{reason="cancelled"}': 8,
        'kime_dropped_items_total{reason="late"}': 9,
        'kime_refusals_total{reason="full"}': 10,
        'kime_refusals_total{reason="late"}': 11,
        "kime_failed_rows_total": 12,
        "kime_batch_splits_total": 13,
        "kime_worker_restarts_total": 14,
        "kime_worker_up": 1,
        'kime_cache_entries{cache="answers"}': 15,
        'kime_cache_hits_total{cache="answers"}': 16,
        'kime_cache_misses_total{cache="answers"}': 17,
        'kime_cache_entries{cache="questions"}': 18,
        'kime_cache_hits_total{cache="questions"}': 19,
        'kime_cache_misses_total{cache="questions"}': 20,
    }
    assert {name: found.get(name) for name in expected} == expected
    (info,) = [name for name in found if name.startswith("kime_model_info")]
    for label in ('model="fake"', 'revision="main"', 'precision="f32"', 'device="cpu, 1 thread, f32"'):
        assert label in info


async def test_what_is_in_flight_is_on_the_page(serve: Serve, engine: FakeEngine, port: int) -> None:
    wire = await serve(metrics_port=port)
    engine.go.clear()
    message = request("a")
    call = wire.decisions.Decide(message)
    stream = wire.decisions.DecideStream()
    await stream.write(item("b"))
    await engine.until(lambda e: e.running == 2)
    found = await read(port)
    assert found["kime_calls_in_flight"] == found["kime_streams_in_flight"] == 1
    assert found["kime_bytes_in_flight"] == message.ByteSize() + item("b").ByteSize()
    assert found["kime_loop_lag_highest_seconds"] >= found["kime_loop_lag_seconds"] >= 0
    engine.go.set()
    await call
    await stream.done_writing()
    assert [answer.id async for answer in stream] == ["b"]
    await wire.is_idle()
    found = await read(port)
    for what in ("calls", "streams", "bytes"):
        assert found[f"kime_{what}_in_flight"] == 0


async def test_refusals_are_counted_by_their_reason(serve: Serve, engine: FakeEngine, port: int) -> None:
    wire = await serve(metrics_port=port, max_calls=1, max_streams=1, max_bytes_in_flight=1000)
    engine.go.clear()
    call = wire.decisions.Decide(request("a"))
    stream = wire.decisions.DecideStream()
    await engine.until(lambda e: e.running == 1)
    await stream.write(item("b", "b" * 1000))
    assert (await stream.read()).HasField("status")
    await failure(wire.decisions.Decide(request("c")))
    await failure(wire.decisions.DecideStream(iter([item("d")])))
    found = await read(port)
    for reason in ("calls", "streams", "bytes"):
        assert found[f'kime_refusals_total{{reason="{reason}"}}'] == 1
    engine.go.set()
    await call
    await stream.done_writing()


async def test_a_worker_that_is_gone_is_not_up(serve: Serve, engine: FakeEngine, port: int) -> None:
    await serve(metrics_port=port)
    engine.is_alive = False
    assert (await read(port))["kime_worker_up"] == 0


async def test_the_page_ends_with_the_server(serve: Serve, engine: FakeEngine, port: int) -> None:
    before = set(threading.enumerate())
    wire = await serve(metrics_port=port)
    await read(port)
    await wire.server.stop(lame_duck=False)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert not [t for t in set(threading.enumerate()) - before if "serve_forever" in t.name]


async def test_there_is_no_page_unless_it_is_asked_for(serve: Serve, engine: FakeEngine) -> None:
    before = set(threading.enumerate())
    await serve()
    assert not [t for t in set(threading.enumerate()) - before if "serve_forever" in t.name]


async def test_a_port_that_is_taken_is_an_error_that_names_it(engine: FakeEngine, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        server = Server(engine, ServerSettings(port=0, metrics_port=port))
        with pytest.raises(OSError, match=f"port {port}"):
            await server.start()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)
