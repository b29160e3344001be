"""Processes that end, or fork, with an engine open: each a Python of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OPEN = """
import asyncio, os, sys
from kime_grpc import Kime
from kime_grpc.core.errors import ClosedError
kime = Kime.open(sys.argv[1], "cpu:1")
questions = {str(i): {"type": "noul", "instructions": "So."} for i in range(60)}
request = {"state": "a word " * 500, "questions": questions}
"""


def run(checkpoint: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", OPEN + script, str(checkpoint)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_process_may_end_while_its_engine_works(modernbert_checkpoint: Path) -> None:
    script = """
async def leave():
    task = asyncio.create_task(kime.decide_async(request))
    while not kime.queue_stats().batches:
        await asyncio.sleep(0)
    task.cancel()
asyncio.run(leave())
print("left")
"""
    ended = run(modernbert_checkpoint, script)
    assert (ended.returncode, ended.stdout) == (0, "left\n"), ended.stderr


def test_an_engine_says_that_it_does_not_follow_a_fork(modernbert_checkpoint: Path) -> None:
    script = """
kime.decide(request)
child = os.fork()
if not child:
    try:
        kime.decide(request)
    except ClosedError as error:
        kime.close()
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert kime.decide(request).answers
"""
    ended = run(modernbert_checkpoint, script)
    assert "open one after the fork" in ended.stdout, ended.stderr
    assert ended.returncode == 0, ended.stderr


def test_a_fork_that_found_locks_held_is_told_all_the_same(modernbert_checkpoint: Path) -> None:
    script = """
caches = (kime._asking.questions, kime._asking.answers)
locks = (*(cache._lock for cache in caches), kime._scheduler._worker._changed, kime._lanes._lock)
for lock in locks:
    lock.acquire()
child = os.fork()
if not child:
    asks = (lambda: kime.decide(request), kime.queue_stats, lambda: asyncio.run(kime.decide_async(request)))
    for ask in asks:
        try:
            ask()
        except ClosedError as error:
            print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
for lock in locks:
    lock.release()
"""
    ended = run(modernbert_checkpoint, script)
    assert ended.stdout.count("open one after the fork") == 3, ended.stderr


def test_an_engine_that_is_dropped_takes_its_threads_along(modernbert_checkpoint: Path) -> None:
    script = """
import gc, threading, time
kime.decide(request)
del kime
gc.collect()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(60)
print(threading.active_count())
"""
    ended = run(modernbert_checkpoint, script)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr
