"""Work off the event loop: lanes, their bound, and what becomes of work whose caller or engine leaves."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from kime_grpc.core.errors import ClosedError, OverloadedError
from kime_grpc.engine import lanes as lanes_module
from kime_grpc.engine.lanes import BIG_BYTES, ITEM_BYTES, Lanes
from kime_grpc.engine.scheduler import off_loop
from tests.chaos.aftermath import resident_bytes

SMALL, BIG = 100, 10_000


class Gate:
    """Work that waits until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, result: object = None) -> object:
        self.entered.release()
        self.go.wait()
        return result


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    lanes = Lanes("test", small_threads=2, big_bytes=1000, limit_bytes=200_000)
    yield lanes
    lanes.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.go.set()


def test_work_gives_what_it_returns_or_raises(lanes: Lanes) -> None:
    assert lanes.submit(SMALL, pow, 2, exp=3).result() == 8
    with pytest.raises(ZeroDivisionError):
        lanes.submit(BIG, divmod, 1, 0).result()


def test_big_work_runs_one_piece_at_a_time(lanes: Lanes, gate: Gate) -> None:
    first = lanes.submit(BIG, gate)
    gate.entered.acquire()
    second = lanes.submit(BIG, gate)
    assert first.running()
    assert not second.running()


def test_small_work_does_not_wait_for_big_work(lanes: Lanes, gate: Gate) -> None:
    lanes.submit(BIG, gate)
    gate.entered.acquire()
    assert lanes.submit(SMALL, str, 7).result() == "7"


def test_the_threads_names_say_whose_they_are(lanes: Lanes) -> None:
    def name() -> str:
        return threading.current_thread().name

    assert lanes.submit(SMALL, name).result().startswith("test-small")
    assert lanes.submit(BIG, name).result().startswith("test-big")


def test_more_bytes_than_may_wait_are_refused(lanes: Lanes, gate: Gate) -> None:
    lanes.submit(150_000, gate)
    with pytest.raises(OverloadedError) as refusal:
        lanes.submit(60_000, gate)
    assert refusal.value.retry_after > 0
    lanes.submit(SMALL, str).result()


def test_one_piece_of_any_size_gets_in_where_nothing_else_is(lanes: Lanes, gate: Gate) -> None:
    huge = lanes.submit(10**9, gate, "huge")
    with pytest.raises(OverloadedError):
        lanes.submit(1, str)
    gate.go.set()
    assert huge.result() == "huge"


def test_bytes_are_given_back_however_work_ends(lanes: Lanes, gate: Gate) -> None:
    futures: list[Future[object]] = [lanes.submit(BIG, gate), lanes.submit(BIG, gate)]
    futures[1].cancel()
    assert lanes.bytes_held == BIG + ITEM_BYTES
    with pytest.raises(ZeroDivisionError):
        lanes.submit(SMALL, divmod, 1, 0).result()
    gate.go.set()
    lanes.close()
    assert lanes.bytes_held == 0


def test_waiting_work_that_is_cancelled_is_never_run(lanes: Lanes, gate: Gate) -> None:
    ran: list[int] = []
    lanes.submit(BIG, gate)
    waiting = [lanes.submit(BIG, ran.append, number) for number in range(3)]
    assert waiting[1].cancel()
    gate.go.set()
    assert waiting[2].result() is None
    assert ran == [0, 2]


def test_cancelled_work_lets_go_of_what_it_was_given_before_its_turn_comes(lanes: Lanes, gate: Gate) -> None:
    class Text(str):
        __slots__ = ("__weakref__",)

    text = Text("long")
    gone = weakref.ref(text)
    lanes.submit(BIG, gate)
    lanes.submit(BIG, len, text).cancel()
    del text
    gc.collect()
    assert gone() is None


async def test_a_task_that_is_cancelled_takes_its_waiting_work_along(lanes: Lanes, gate: Gate) -> None:
    ran: list[int] = []
    lanes.submit(BIG, gate)
    leaving = asyncio.ensure_future(off_loop(lanes, BIG, ran.append, 1))
    staying = asyncio.ensure_future(off_loop(lanes, BIG, ran.append, 2))
    await asyncio.sleep(0)
    assert lanes.bytes_held == 3 * (BIG + ITEM_BYTES)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert lanes.bytes_held == 2 * (BIG + ITEM_BYTES)
    gate.go.set()
    await staying
    assert ran == [2]


def test_closing_refuses_what_waits_and_finishes_what_runs(lanes: Lanes, gate: Gate) -> None:
    running = lanes.submit(BIG, gate, "done")
    gate.entered.acquire()
    waiting = lanes.submit(BIG, str)
    lanes.close(wait=False)
    with pytest.raises(ClosedError):
        lanes.submit(SMALL, str)
    gate.go.set()
    assert running.result() == "done"
    with pytest.raises(ClosedError):
        waiting.result()


def test_closing_leaves_no_thread_behind() -> None:
    lanes = Lanes("leaving")
    for size in (SMALL, 10**6):
        lanes.submit(size, str).result()
    lanes.close()
    lanes.close()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("leaving")] == []


def test_threads_of_lanes_that_are_dropped_end() -> None:
    lanes = Lanes("dropped")
    lanes.submit(SMALL, str).result()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("dropped")]
    assert threads
    del lanes
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def run(script: str) -> subprocess.CompletedProcess[str]:
    opening = "import os, sys\nfrom kime_grpc.engine.lanes import Lanes\nlanes = Lanes('kime')\n"
    return subprocess.run(
        [sys.executable, "-c", opening + script], capture_output=True, text=True, timeout=60, check=False
    )


def test_lanes_load_no_torch_and_no_event_loop() -> None:
    ended = run("print(*sorted({'torch', 'numpy', 'grpc', 'asyncio'} & sys.modules.keys()))")
    assert ended.stdout == "\n", ended.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_lanes_are_closed_in_a_forked_process() -> None:
    ended = run(
        """
lanes.submit(1, str).result()
child = os.fork()
if not child:
    try:
        lanes.submit(1, str)
    except Exception as error:
        lanes.close()
        print(type(error).__name__, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(lanes.submit(1, str, 5).result())
"""
    )
    assert (ended.returncode, ended.stdout) == (0, "ClosedError\n5\n"), ended.stderr


def test_a_process_may_end_with_lanes_open() -> None:
    ended = run("lanes.submit(1, str).result(); lanes.submit(10**6, str).result(); print('left')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "left\n", "")


@pytest.mark.skipif(not hasattr(lanes_module._LIBRARY, "malloc_trim"), reason="only glibc gives memory back")
def test_the_memory_of_big_work_is_given_back() -> None:
    lanes = Lanes("test")
    # Small pieces, since the library gives large ones back by itself.
    pieces: list[bytes] = []

    def work() -> None:
        pieces.extend(bytes(2000) for _ in range(100_000))
        keep = pieces[::500]
        pieces.clear()
        pieces.extend(keep)

    before = resident_bytes(os.getpid())
    lanes.submit(BIG_BYTES + 1, work).result()
    assert len(pieces) == 200
    assert resident_bytes(os.getpid()) - before < 100 * 2**20
    lanes.close()
