"""A server's life: bind, warm up, serve; on a signal stop taking work, finish what is in flight, end."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kime_grpc.server import metrics
from kime_grpc.server.bounds import Bounds
from kime_grpc.server.engine import Engine
from kime_grpc.server.health import Health
from kime_grpc.server.in_flight import InFlight
from kime_grpc.server.interceptors import CallInterceptor
from kime_grpc.server.library_log import leave_out_clients_that_left
from kime_grpc.server.loop_lag import LoopLag
from kime_grpc.server.ports import cannot_listen, check_free
from kime_grpc.server.service import ServiceCore
from kime_grpc.server.servicer import DecisionServicer, ModelServicer
from kime_grpc.server.settings import HARD_LIMIT_FACTOR, ServerSettings, address
from kime_grpc.v1 import (
    decision_service_pb2,
    decision_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
SERVICES = (
    decision_service_pb2.DESCRIPTOR.services_by_name["DecisionService"].full_name,
    model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
)


class Server:
    """Serves one engine on one port. Lives on one event loop; does not own the engine."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        """Serve `engine` as `settings` say, once started. Needs a running event loop."""
        self._engine = engine
        self._settings = settings
        self._port = 0
        self._in_flight = InFlight()
        self._bounds = Bounds(settings)
        self._core = ServiceCore(engine, settings, self._bounds)
        self._health = Health(SERVICES)
        self._lag = LoopLag()
        self._following: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._metrics: metrics.MetricsPage | None = None
        leave_out_clients_that_left()
        interceptor = CallInterceptor(self._in_flight, self._bounds, settings.max_message_bytes)
        self._grpc = grpc.aio.server(interceptors=(interceptor,), options=_options(settings))
        decision_service_pb2_grpc.add_DecisionServiceServicer_to_server(
            DecisionServicer(self._core), self._grpc
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(self._core), self._grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection((*SERVICES, health_name, reflection.SERVICE_NAME), self._grpc)

    @property
    def port(self) -> int:
        """The port that it listens on; 0 before it is started."""
        return self._port

    @property
    def address(self) -> str:
        """Host and port that it listens on."""
        return address(self._settings.host, self._port)

    async def start(self) -> None:
        """Bind the port, decide something to warm up, then say SERVING.

        Raises:
            OSError: the port cannot be bound.
            KimeError: the engine cannot decide.
        """
        settings = self._settings
        try:
            self._port = self._grpc.add_insecure_port(settings.address)
        except RuntimeError as error:
            raise cannot_listen(settings.host, settings.port) from error
        await self._grpc.start()
        try:
            if settings.metrics_port:
                known = metrics.registry(self._engine, self._bounds, self._lag)
                self._metrics = metrics.MetricsPage(known, settings.metrics_host, settings.metrics_port)
            await asyncio.to_thread(self._engine.warm_up)
        except BaseException:
            await self._grpc.stop(None)
            await self._end_own()
            raise
        self._following = asyncio.create_task(self._health.follow(self._engine), name="kime-health")
        self._measuring = asyncio.create_task(self._lag.measure(), name="kime-loop-lag")
        self._health.set_serving(is_serving=self._engine.is_alive)

    async def stop(self, *, lame_duck: bool = True) -> None:
        """Stop as the settings say; returns when nothing runs any more.

        Args:
            lame_duck: whether new work is still taken for a while, so that balancers notice first.
        """
        if self._following is not None:
            self._following.cancel()
        self._health.set_serving(is_serving=False)
        if lame_duck:
            await asyncio.sleep(self._settings.lame_duck_seconds)
        self._in_flight.drain()
        self._core.drain()
        if not await self._none_left_within(self._settings.grace_seconds):
            _log.warning("%d calls did not finish in time and are cut off", self._in_flight.count)
            self._in_flight.cut_off()
            # A client that reads nothing keeps its status from leaving; it hears of the end from the library.
            await self._none_left_within(FLUSH_SECONDS)
        self._health.close()
        await self._in_flight.hold_back()
        # Clients hear that the connection ends before they hear that they should try again: not here, then.
        self._in_flight.tell()
        # What has finished may still be on its way into the socket, where stopping at once would lose it.
        await self._grpc.stop(FLUSH_SECONDS)
        await self._in_flight.wait_for_none()
        await self._end_own()

    async def _end_own(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
        await asyncio.to_thread(self._core.close)
        if self._metrics is not None:
            await self._metrics.close()
            self._metrics = None

    async def _none_left_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._in_flight.wait_for_none(), seconds)
        except TimeoutError:
            return False
        return True


def serve(settings: ServerSettings) -> None:
    """Open the model and serve it until SIGTERM or SIGINT; a second signal ends the process at once.

    Prints `listening on HOST:PORT` when it is ready. Call it from the main thread.

    Raises:
        OSError: the port cannot be bound.
        KimeError: the model cannot be opened.
    """
    asyncio.run(_serve(settings))


async def _serve(settings: ServerSettings) -> None:
    from kime_grpc.engine.kime import Kime

    check_free(settings.host, settings.port)
    check_free(settings.metrics_host, settings.metrics_port)
    with _signals() as signalled:
        kime = await asyncio.to_thread(
            Kime.open,
            settings.model,
            settings.device,
            settings.precision,
            answer_cache=settings.answer_cache,
            question_cache=settings.question_cache_bytes,
            watchdog=settings.watchdog_seconds,
            limits=settings.request_limits,
        )
        with kime:
            server = Server(kime, settings)
            await server.start()
            # A full collection walks all of torch: a tenth of a second in which nothing else runs.
            gc.collect()
            gc.freeze()
            sys.stdout.write(f"listening on {server.address}\n")
            sys.stdout.flush()
            received = await signalled
            _log.info("%s: stopping", signal.Signals(received).name)
            await server.stop(lame_duck=received == signal.SIGTERM)


@contextmanager
def _signals() -> Iterator[asyncio.Future[int]]:
    """A future that the first SIGTERM or SIGINT resolves. The second one ends the process at once."""
    loop = asyncio.get_running_loop()
    signalled: asyncio.Future[int] = loop.create_future()

    def resolve(number: int) -> None:
        if not signalled.done():
            signalled.set_result(number)

    def on_signal(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(resolve, number)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    """Channel arguments of the library."""
    return [
        # A second server on the port is an error, not half of the traffic.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes * HARD_LIMIT_FACTOR),
        ("grpc.max_send_message_length", -1),
        # Calls that the event loop has not got to yet. Beyond the first number the library drops some of them
        # at random, beyond the second one all, with a bare CANCELLED: far above what a burst brings.
        ("grpc.server.max_pending_requests", 10_000),
        ("grpc.server.max_pending_requests_hard_limit", 20_000),
        # Find clients that vanished without a word, and let clients look for us just as often.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]
