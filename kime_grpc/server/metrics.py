"""The page that Prometheus reads: what the engine and the server count anyway, as of when it is asked for.

Names follow Prometheus's conventions: base units, `_total` for what only grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from kime_grpc.server.bounds import Bounds
from kime_grpc.server.engine import Engine
from kime_grpc.server.loop_lag import LoopLag
from kime_grpc.server.ports import cannot_listen


class MetricsPage:
    """Serves a registry over HTTP, on a thread of its own."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Serve at once.

        Args:
            registry: what to serve.
            host: the address to listen on.
            port: 0 for any free one.

        Raises:
            OSError: the port cannot be bound.
        """
        try:
            self._http, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise cannot_listen(host, port) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._http.server_port

    async def close(self) -> None:
        """Let go of the port and the thread."""
        await asyncio.to_thread(self._http.shutdown)
        self._http.server_close()
        self._thread.join()


def registry(engine: Engine, bounds: Bounds, lag: LoopLag) -> CollectorRegistry:
    """All that is known of a server and its engine."""
    made = CollectorRegistry()
    made.register(_EngineCounts(engine))
    made.register(_ServerCounts(engine, bounds, lag))
    return made


class _EngineCounts(Collector):
    """The engine's model, queue, worker and caches."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        yield InfoMetricFamily(
            "kime_model",
            "The model that is served.",
            value={
                "model": engine.model_id,
                "revision": engine.revision,
                "family": engine.family,
                "precision": engine.precision,
                "device": engine.device,
                "calibration": engine.calibration.id,
            },
        )
        yield _gauge("kime_worker_up", "Whether a worker is there to take what comes.", engine.is_alive)

        queue = engine.queue_stats()
        yield _gauge("kime_queue_items", "Items that wait in the queue.", queue.waiting_items)
        yield _gauge("kime_queue_tokens", "Tokens of the rows that wait.", queue.waiting_tokens)
        yield _gauge("kime_running_rows", "Rows of the batch that runs.", queue.running_rows)
        yield _gauge("kime_batch_budget_tokens", "Tokens that a batch may have.", queue.batch_budget)
        yield _counter("kime_batches", "Batches begun.", queue.batches)
        yield _counter("kime_batch_rows", "Rows of all batches.", queue.batch_rows)
        yield _counter("kime_batch_tokens", "Tokens of all batches.", queue.batch_tokens)
        yield _counters(
            "kime_dropped_items",
            "Items dropped unrun, because their caller was gone or their deadline had passed.",
            "reason",
            {"cancelled": queue.cancelled, "late": queue.late},
        )
        yield _counter("kime_failed_rows", "Rows that the device failed on.", queue.failed)
        yield _counter("kime_batch_splits", "Batches split because memory ran out.", queue.split)
        yield _counter(
            "kime_worker_restarts", "Times the worker died or hung and was replaced.", queue.restarts
        )

        caches = {"answers": engine.cache_stats(), "questions": engine.question_cache_stats()}
        hits = {name: stats.hits for name, stats in caches.items()}
        misses = {name: stats.misses for name, stats in caches.items()}
        entries = {name: stats.entries for name, stats in caches.items()}
        yield _counters("kime_cache_hits", "Questions found in a cache.", "cache", hits)
        yield _counters("kime_cache_misses", "Questions looked for in a cache in vain.", "cache", misses)
        yield _gauges("kime_cache_entries", "Questions in a cache.", "cache", entries)


class _ServerCounts(Collector):
    """What is in flight, what was refused by the server or by its engine, and the event loop."""

    def __init__(self, engine: Engine, bounds: Bounds, lag: LoopLag) -> None:
        self._engine = engine
        self._bounds = bounds
        self._lag = lag

    def collect(self) -> Iterator[Metric]:
        bounds, queue = self._bounds, self._engine.queue_stats()
        yield _gauge("kime_calls_in_flight", "Unary calls in flight.", bounds.calls.taken)
        yield _gauge("kime_streams_in_flight", "Open streams.", bounds.streams.taken)
        yield _gauge("kime_bytes_in_flight", "Bytes of requests' messages in flight.", bounds.bytes.taken)
        yield _counters(
            "kime_refusals",
            "Calls and items refused as OVERLOADED: the queue was full or could not meet the deadline, or "
            "too many bytes, calls or streams were in flight.",
            "reason",
            {
                "full": queue.refused_full,
                "late": queue.refused_late,
                "bytes": bounds.bytes.refused,
                "calls": bounds.calls.refused,
                "streams": bounds.streams.refused,
            },
        )
        yield _gauge("kime_loop_lag_seconds", "How late the event loop was the last time.", self._lag.last)
        yield _gauge(
            "kime_loop_lag_highest_seconds",
            "How late the event loop was at the most in the last 10 to 20 seconds.",
            self._lag.highest,
        )


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(name, says, value=value)


def _gauges(name: str, says: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(GaugeMetricFamily(name, says, labels=(label,)), values.items())


def _counter(name: str, says: str, value: float) -> Metric:
    return CounterMetricFamily(name, says, value=value)


def _counters(name: str, says: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(CounterMetricFamily(name, says, labels=(label,)), values.items())


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Iterable[tuple[str, float]]) -> Metric:
    for label, value in values:
        family.add_metric([label], value)
    return family
