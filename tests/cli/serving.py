"""The real server in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator

from kime_grpc import Kime
from kime_grpc.server.lifecycle import Server
from kime_grpc.server.settings import ServerSettings


@contextlib.contextmanager
def serving(kime: Kime) -> Iterator[str]:
    """Serve a model; gives the address."""
    started: queue.SimpleQueue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.SimpleQueue()

    async def serve() -> None:
        stop = asyncio.Event()
        server = Server(kime, ServerSettings(port=0))
        await server.start()
        started.put((server.address, asyncio.get_running_loop(), stop))
        await stop.wait()
        await server.stop(lame_duck=False)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    address, loop, stop = started.get(timeout=60)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
