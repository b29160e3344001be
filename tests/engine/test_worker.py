"""What the worker does about devices that fail, hang, lie or run out of memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from kime_grpc.core.errors import BackendError, ClosedError, LateError, OverloadedError, WorkerRestartedError
from kime_grpc.core.layout import Row
from kime_grpc.engine import worker as worker_module
from kime_grpc.engine.batch_former import Item
from kime_grpc.engine.scheduler import MEASURED_RUNS, Scheduler
from kime_grpc.engine.worker import MOST_LEFT_BEHIND, BatchBudget
from kime_grpc.models.model import RowOutput
from tests.engine.device import BUDGET, POISON, Device, entered, numbers, output, row

WATCHDOG = 0.2


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def scheduler(device: Device) -> Iterator[Scheduler]:
    scheduler = Scheduler(device, BUDGET, watchdog=WATCHDOG)
    yield scheduler
    scheduler.close()


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - other threads change what is looked at
        await asyncio.sleep(0.005)


async def test_a_worker_that_dies_refuses_what_it_held_and_is_replaced(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET)
    device.poison = SystemExit
    with device.hold():
        held = asyncio.create_task(scheduler.run_async([row(POISON)]))
        await entered(device)
        waiting = asyncio.create_task(scheduler.run_async([row(1)]))
        await asyncio.sleep(0)
    with pytest.raises(WorkerRestartedError):
        await held
    assert numbers((await waiting).outputs) == [1]
    assert scheduler.is_alive
    assert scheduler.stats().restarts == 1
    assert len(device.threads) == 2
    scheduler.close()


async def test_a_replaced_worker_is_trusted_once_it_answers_what_was_answered_before(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET)
    scheduler.run([row(1)])
    device.poison = SystemExit
    with pytest.raises(WorkerRestartedError):
        await scheduler.run_async([row(POISON)])
    await until(lambda: scheduler.is_alive)
    assert device.batches == [[1], [POISON], [1]]
    scheduler.close()


async def test_a_forward_that_hangs_is_given_up_and_another_thread_takes_over(
    scheduler: Scheduler, device: Device
) -> None:
    await scheduler.run_async([row(1)])
    await entered(device)
    with device.hold():
        stuck = asyncio.create_task(scheduler.run_async([row(2)]))
        await entered(device)
        waiting = asyncio.create_task(scheduler.run_async([row(3)]))
        with pytest.raises(WorkerRestartedError):
            await stuck
        assert not scheduler.is_alive
        await until(lambda: len(device.threads) > 1)
    assert numbers((await waiting).outputs) == [3]
    await until(lambda: scheduler.is_alive)
    assert scheduler.stats().restarts >= 1
    assert scheduler.stats().waiting_items == 0


async def test_what_a_thread_that_was_left_behind_says_is_not_believed(
    scheduler: Scheduler, device: Device
) -> None:
    outcomes: list[BaseException | None] = []
    with device.hold():
        stuck = asyncio.create_task(scheduler.run_async([row(2), row(3)]))
        await entered(device)
        outcomes.append((await asyncio.gather(stuck, return_exceptions=True))[0])  # type: ignore[arg-type]
    await until(lambda: sum(t.name == "kime-worker" for t in threading.enumerate()) == 1)
    assert [type(outcome) for outcome in outcomes] == [WorkerRestartedError]
    assert numbers(scheduler.run([row(4)]).outputs) == [4]
    assert scheduler.stats().failed == 0


async def test_a_device_that_always_hangs_is_no_longer_asked_and_is_asked_again_when_it_returns(
    scheduler: Scheduler, device: Device
) -> None:
    with device.hold():
        for i in range(MOST_LEFT_BEHIND):
            with pytest.raises(WorkerRestartedError):
                await scheduler.run_async([row(i)])
        with pytest.raises(WorkerRestartedError, match="elsewhere"):
            await scheduler.run_async([row(9)])
        assert not scheduler.is_alive
    await until(lambda: scheduler.is_alive)
    assert numbers((await scheduler.run_async([row(5)])).outputs) == [5]


async def test_closing_does_not_wait_for_a_forward_that_hangs(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET, watchdog=WATCHDOG)
    with device.hold():
        stuck = asyncio.create_task(scheduler.run_async([row(2)]))
        await entered(device)
        await asyncio.to_thread(scheduler.close)
        with pytest.raises(WorkerRestartedError):
            await stuck
        with pytest.raises(ClosedError):
            await scheduler.run_async([row(3)])
    await until(lambda: not any(t.name == "kime-worker" for t in threading.enumerate()))


def test_a_slow_forward_that_was_expected_to_be_slow_does_not_count_as_hung(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET, watchdog=WATCHDOG)
    scheduler._worker._costs.observe(10, 60.0)
    with device.hold(), ThreadPoolExecutor(1) as caller:
        asked = caller.submit(scheduler.run, [row(1)])
        device.entered.acquire()
        with pytest.raises(TimeoutError):
            asked.result(timeout=3 * WATCHDOG)
        device.step()
        assert numbers(asked.result().outputs) == [1]
    assert scheduler.stats().restarts == 0
    scheduler.close()


class Broken:
    """A device that works until it is broken: then it raises, or says NaN, whatever it is asked."""

    def __init__(self) -> None:
        self.is_broken = False
        self.says_nan = False
        self.asked = 0

    def __call__(self, rows: Sequence[Row]) -> list[RowOutput]:
        self.asked += 1
        if self.is_broken and not self.says_nan:
            raise RuntimeError("broken")
        outputs = [output(r.ids[0]) for r in rows]
        if self.is_broken:
            outputs = [RowOutput(np.array([np.nan], np.float32), o.act) for o in outputs]
        return outputs


@pytest.mark.parametrize("says_nan", [False, True])
async def test_a_device_that_fails_on_everything_is_not_alive_until_it_answers_again(
    monkeypatch: pytest.MonkeyPatch, says_nan: bool
) -> None:
    monkeypatch.setattr(worker_module, "TRY_AGAIN_SECONDS", 0.01)
    broken = Broken()
    broken.says_nan = says_nan
    scheduler = Scheduler(broken, BUDGET)
    scheduler.run([row(1)])
    broken.is_broken = True
    with pytest.raises(BackendError):
        scheduler.run([row(2)])
    await until(lambda: not scheduler.is_alive)
    asked = broken.asked
    await until(lambda: broken.asked > asked + 2)
    assert not scheduler.is_alive
    broken.is_broken = False
    await until(lambda: scheduler.is_alive)
    scheduler.close()


async def test_one_bad_request_does_not_make_the_device_seem_broken(
    scheduler: Scheduler, device: Device
) -> None:
    scheduler.run([row(1)])
    with pytest.raises(BackendError):
        scheduler.run([row(POISON)])
    await until(lambda: device.batches == [[1], [POISON], [1]])
    assert scheduler.is_alive


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["cuda", "cpu", "python"])
def test_a_batch_that_memory_does_not_suffice_for_is_split(error: Exception) -> None:
    sizes: list[int] = []

    def forward(rows: Sequence[Row]) -> list[RowOutput]:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise error
        return [output(r.ids[0]) for r in rows]

    scheduler = Scheduler(forward, BUDGET)
    assert numbers(scheduler.run([row(i) for i in range(7)]).outputs) == list(range(7))
    assert sizes == [7, 3, 1, 2, 4, 2, 2]
    assert scheduler.stats().split == 3
    assert scheduler.stats().failed == 0
    scheduler.close()


def test_a_row_that_memory_does_not_suffice_for_fails_alone_and_says_why() -> None:
    def forward(rows: Sequence[Row]) -> list[RowOutput]:
        if any(r.ids[0] == POISON for r in rows):
            raise MemoryError
        return [output(r.ids[0]) for r in rows]

    scheduler = Scheduler(forward, BUDGET)
    with ThreadPoolExecutor(5) as callers:
        jobs = [callers.submit(scheduler.run, [row(i)]) for i in (1, 2, POISON, 3, 4)]
    assert [numbers(jobs[i].result().outputs) for i in (0, 1, 3, 4)] == [[1], [2], [3], [4]]
    with pytest.raises(BackendError, match="memory"):
        jobs[2].result()
    scheduler.close()


def test_a_failed_run_lets_go_of_its_memory_before_its_parts_run() -> None:
    class Tensor:
        alive = 0

        def __init__(self) -> None:
            Tensor.alive += 1

        def __del__(self) -> None:
            Tensor.alive -= 1

    seen: list[int] = []

    def forward(rows: Sequence[Row]) -> list[RowOutput]:
        seen.append(Tensor.alive)
        scratch = Tensor()
        if len(rows) > 1:
            raise MemoryError
        del scratch
        return [output(r.ids[0]) for r in rows]

    scheduler = Scheduler(forward, BUDGET)
    scheduler.run([row(i) for i in range(4)])
    assert seen == [0] * 7
    scheduler.close()


def test_a_forward_that_gives_too_few_outputs_fails_its_rows_and_nobody_waits_for_ever() -> None:
    scheduler = Scheduler(lambda rows: [output(r.ids[0]) for r in rows[1:]], BUDGET)
    with pytest.raises(BackendError):
        scheduler.run([row(1), row(2)])
    scheduler.close()


async def test_a_caller_who_cannot_be_told_keeps_no_other_from_hearing(
    scheduler: Scheduler, device: Device
) -> None:
    def cannot() -> None:
        raise MemoryError

    with device.hold():
        running = asyncio.create_task(scheduler.run_async([row(1)]))
        await entered(device)
        scheduler._worker.submit(Item([row(2)], cannot, 0.0), bounded=False)
        waiting = asyncio.create_task(scheduler.run_async([row(3)]))
        await asyncio.sleep(0)
    await running
    assert numbers((await waiting).outputs) == [3]
    assert scheduler.is_alive


async def test_a_caller_behind_a_batch_that_takes_long_hears_when_its_time_is_over(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET)
    with device.hold():
        running = asyncio.create_task(scheduler.run_async([row(1)]))
        await entered(device)
        with pytest.raises(LateError):
            await scheduler.run_async([row(2)], timeout=0.2)
        assert scheduler.stats().late == 1
    await running
    assert device.batches == [[1]]
    scheduler.close()


def test_batches_are_smaller_once_memory_did_not_suffice() -> None:
    sizes: list[int] = []

    def forward(rows: Sequence[Row]) -> list[RowOutput]:
        sizes.append(len(rows))
        if len(rows) > 4:
            raise MemoryError
        return [output(r.ids[0]) for r in rows]

    scheduler = Scheduler(forward, BatchBudget(first=100, least=10, most=100))
    scheduler.run([row(i) for i in range(100)])
    assert scheduler.stats().batch_budget <= 50
    assert sizes.count(10) <= 2
    scheduler.close()


async def test_a_deadline_that_cannot_be_met_is_refused_and_a_free_device_is_tried(device: Device) -> None:
    scheduler = Scheduler(device, BUDGET)
    scheduler._worker._costs.observe(10, 0.3)
    with device.hold():
        running = asyncio.create_task(scheduler.run_async([row(1)]))
        await entered(device)
        with pytest.raises(OverloadedError, match="longer than the caller waits"):
            await scheduler.run_async([row(2)], timeout=0.1)
    await running
    await asyncio.sleep(0.35)
    assert numbers((await scheduler.run_async([row(3)], timeout=0.1)).outputs) == [3]
    assert scheduler.stats().refused_late == 1
    scheduler.close()


def test_measuring_fits_the_budget_to_what_batches_cost() -> None:
    sizes: list[int] = []

    def forward(rows: Sequence[Row]) -> list[RowOutput]:
        sizes.append(len(rows))
        # Every first run takes longer, and must not count.
        threading.Event().wait(0.02 + 0.0005 * len(rows) + 0.1 * (sizes.count(len(rows)) == 1))
        return [output(r.ids[0]) for r in rows]

    scheduler = Scheduler(forward, BatchBudget(first=2560, least=16, most=100_000))
    scheduler.measure(row(1))
    assert sizes == [n for n in (1, 4, 16, 64, 256) for _ in range(MEASURED_RUNS)]
    # 0.02 s are a twentieth of a batch of 7,600 tokens of 0.00005 s each.
    assert scheduler.stats().batch_budget == pytest.approx(7600, rel=0.3)
    scheduler.close()


def test_measuring_a_slow_device_stops_at_small_batches() -> None:
    sizes: list[int] = []

    def forward(rows: Sequence[Row]) -> list[RowOutput]:
        sizes.append(len(rows))
        threading.Event().wait(0.1 * len(rows))
        return [output(r.ids[0]) for r in rows]

    scheduler = Scheduler(forward, BatchBudget(first=2560, least=16, most=4096))
    scheduler.measure(row(1))
    assert max(sizes) == 1
    scheduler.close()
