"""Threads for what would hold up an event loop: a few for small work, and one for big work.

One thread for big work, because of memory: a text of 4 MiB takes 1 to 2 GB while it is tokenized, which the
system gets back afterwards. Small work has threads of its own, so that it does not queue behind big work.
What waits is bounded in bytes, and work whose caller has left is never run.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, ParamSpec, TypeVar

from kime_grpc.core.errors import ClosedError, OverloadedError

_P = ParamSpec("_P")
_T = TypeVar("_T")

SMALL_THREADS = 2
BIG_BYTES = 256 * 1024
LIMIT_BYTES = 64 * 2**20
# What a piece of work takes beside its bytes; bounds how many of the smallest may wait.
ITEM_BYTES = 1024
# When a refused caller should come back, in seconds: by then a few megabytes are done.
RETRY_SECONDS = (0.5, 1.5)
_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None


class Lanes:
    """Runs work on threads of its own, and gives a `concurrent.futures.Future` for each piece of it.

    Cancelling a future that has not started drops its work, and lets go of what the work was given. Safe from
    any thread. Close it; threads of one that is dropped unclosed end by themselves, and when Python ends it
    waits for them. In a forked process it is closed.
    """

    def __init__(
        self,
        name: str,
        *,
        small_threads: int = SMALL_THREADS,
        big_bytes: int = BIG_BYTES,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """Start no thread yet; each starts when there is work for it.

        Args:
            name: what the threads' names begin with.
            small_threads: how many threads there are for small work.
            big_bytes: work of more bytes is big, and runs one piece at a time.
            limit_bytes: how many bytes may wait or run. One piece of any size gets in where nothing else is.
        """
        self._big_bytes = big_bytes
        self._limit_bytes = limit_bytes
        self._small = ThreadPoolExecutor(small_threads, f"{name}-small")
        self._big = ThreadPoolExecutor(1, f"{name}-big")
        # Re-entrant: collecting garbage may close one while its thread counts.
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._bytes = 0
        self._process = os.getpid()

    def submit(self, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run `work(*args, **kwargs)` when its turn comes.

        Args:
            size: about how many bytes the work is about, which say its lane and how long it takes.
            work: what to run; the future has what it returns or raises.
            args: for `work`.
            kwargs: for `work`.

        Raises:
            OverloadedError: more waits than may.
            ClosedError: the lanes are closed. A future has it too, if they were closed while its work waited.
        """
        if os.getpid() != self._process:
            # Before the lock, which may have been held at the fork.
            raise ClosedError("the engine stayed in the process that opened it; open one after the fork")
        is_big = size > self._big_bytes
        task = _Task(partial(work, *args, **kwargs), self._closed, is_big=is_big)
        charge = size + ITEM_BYTES
        with self._lock:
            if self._closed.is_set():
                raise ClosedError("the engine is closed")
            if self._bytes and self._bytes + charge > self._limit_bytes:
                raise _overloaded("too much text waits to be read; try again later or elsewhere")
            try:
                future = (self._big if is_big else self._small).submit(task.run)
            except RuntimeError as error:  # no thread could be started
                raise _overloaded("no thread can be started for this; try again later") from error
            self._bytes += charge

        def done(_: Future[_T]) -> None:
            # A cancelled task stays in its lane until its turn comes, and must hold no texts till then.
            task.work = None
            with self._lock:
                self._bytes -= charge

        future.add_done_callback(done)
        return future

    @property
    def bytes_held(self) -> int:
        """Bytes of what waits or runs, `ITEM_BYTES` for each piece of work included."""
        return self._bytes

    def close(self, *, wait: bool = True) -> None:
        """Refuse further work, and what waits. What runs is finished.

        Args:
            wait: until the threads have ended.
        """
        if os.getpid() != self._process:
            # The threads stayed in the process that started them, and their locks may be held for good.
            return
        with self._lock:
            self._closed.set()
        for lane in (self._small, self._big):
            lane.shutdown(wait=wait)


class _Task(Generic[_T]):
    """A piece of work that can be let go of before its turn comes."""

    def __init__(self, work: Callable[[], _T], closed: threading.Event, *, is_big: bool) -> None:
        self.work: Callable[[], _T] | None = work
        self._closed = closed
        self._is_big = is_big

    def run(self) -> _T:
        work = self.work
        if work is None or self._closed.is_set():
            raise ClosedError("the engine was closed while this waited")
        try:
            return work()
        finally:
            if self._is_big:
                _give_memory_back()


def _give_memory_back() -> None:
    """Let the C library give freed memory back to the system; of itself it keeps what big work took."""
    trim = getattr(_LIBRARY, "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _overloaded(message: str) -> OverloadedError:
    return OverloadedError(message, retry_after=random.uniform(*RETRY_SECONDS))  # noqa: S311 - spreads callers
