"""`Kime`: one model, opened, that answers questions in this process. The server and the CLI sit on it."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from kime_grpc.core.answers import Response, Timing
from kime_grpc.core.calibration import Calibration
from kime_grpc.core.errors import InvalidError, OverloadedError, TooLongError, TooManyTokensError
from kime_grpc.core.request import CacheMode, CheckedRequest, Question, QuestionType, RequestLimits
from kime_grpc.engine.answer_cache import CacheStats
from kime_grpc.engine.asking import AnyRequest, Asking, tokens_of
from kime_grpc.engine.device_forward import DeviceForward
from kime_grpc.engine.devices import Device, resolve_device, resolve_precision
from kime_grpc.engine.lanes import Lanes
from kime_grpc.engine.preparing import TokenCounts, size_of
from kime_grpc.engine.question_cache import QuestionCacheStats
from kime_grpc.engine.reports import BatchTiming, Embedded, Memory, Outcome, QueueStats
from kime_grpc.engine.scheduler import WATCHDOG_SECONDS, Scheduler, off_loop
from kime_grpc.engine.worker import BatchBudget
from kime_grpc.models.files import WEIGHTS_FILE
from kime_grpc.models.hub import ResolvedModel, resolve
from kime_grpc.models.model import Model

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

# Tokens of a batch, at first and within what may be fitted: a GPU wants more of them to be busy.
CPU_BUDGET = BatchBudget(first=1024, least=256, most=4096)
GPU_BUDGET = BatchBudget(first=16_384, least=1024, most=65_536)
# Tokenizing this many bytes takes a fraction of a millisecond; more is done off the event loop, on which
# many callers may come at once.
ON_LOOP_BYTES = 256
# Making an answer of logits takes as long as tokenizing so many bytes.
ANSWER_BYTES = 32
QUESTION_CACHE_BYTES = 16 * 2**20


class Kime:
    """A model that answers. Safe from any thread; close it, or use it as a context manager."""

    def __init__(
        self,
        resolved: ResolvedModel,
        model: Model,
        device: Device,
        precision: str,
        *,
        answer_cache: int,
        question_cache: int,
        watchdog: float,
        limits: RequestLimits,
    ) -> None:
        """Use `Kime.open`."""
        self.limits = limits
        self.model_id = resolved.model_id
        self.revision = resolved.revision
        self.precision = precision
        self.device = device.words(precision)
        self.calibration = Calibration.from_config(
            model.config.temperature, model.config.temperature_by_options
        )
        self._model = model
        self._asking = Asking(
            model,
            (resolved.model_id, resolved.revision),
            self.calibration,
            limits,
            answer_cache=answer_cache,
            question_cache=question_cache,
        )
        self._lanes = Lanes("kime-prepare")
        self._forward = DeviceForward(model, device.threads)
        self._scheduler = Scheduler(
            self._forward, CPU_BUDGET if device.is_cpu else GPU_BUDGET, watchdog=watchdog
        )
        # Without waiting: what collects garbage may be the worker's own thread.
        weakref.finalize(self, self._scheduler.close, wait=False).atexit = False
        for sentence in self.calibration.replaced:
            _log.warning("model %s: %s; its confidence is uncalibrated there", self.model_id, sentence)

    @classmethod
    def open(
        cls,
        model: str | Path | None = None,
        device: str = "auto",
        precision: str = "auto",
        *,
        preload: bool = False,
        answer_cache: int = 0,
        question_cache: int = QUESTION_CACHE_BYTES,
        watchdog: float = WATCHDOG_SECONDS,
        limits: RequestLimits | None = None,
    ) -> Self:
        """Open a model.

        Args:
            model: a checkpoint directory, a `.kime` file, `hf://org/repo[/subfolder][@revision]`, an alias
                such as `laya`, or None for the embedded model.
            device: `auto`, `cpu`, `cpu:THREADS`, `cuda`, `cuda:INDEX`, `mps` or `metal`.
            precision: `auto` (f16 on a GPU, f32 on the CPU), `f32` or `f16`.
            preload: run the usual batch shapes once, so that no caller waits for them.
            answer_cache: how many questions' logits to remember; 0 for none.
            question_cache: how many bytes of questions' tokens to remember; 0 for none.
            watchdog: after how many seconds a forward counts as hung, plus 20 times what it should take. Then
                what it held ends with a `WorkerRestartedError`, and another thread takes over.
            limits: how much a request may hold.

        Raises:
            NotFoundError: no such model.
            ModelError, TokenizerError: the checkpoint is broken.
            UnsupportedError: the device or precision is not there.
        """
        if answer_cache < 0:
            raise ValueError(f"answer_cache is a number of questions from 0 on, not {answer_cache}")
        if question_cache < 0:
            raise ValueError(f"question_cache is a number of bytes from 0 on, not {question_cache}")
        if not 0 < watchdog <= threading.TIMEOUT_MAX:
            raise ValueError(f"watchdog is a number of seconds above 0, not {watchdog}")
        where = resolve_device(device)
        precise = resolve_precision(precision, where)
        resolved = resolve(None if model is None else str(model))
        dtype = torch.float16 if precise == "f16" else torch.float32
        opened = Model.open(resolved.path, torch.device(where.torch_name), dtype)
        kime = cls(
            resolved,
            opened,
            where,
            precise,
            answer_cache=answer_cache,
            question_cache=question_cache,
            watchdog=watchdog,
            limits=limits or RequestLimits(),
        )
        if preload:
            kime.warm_up()
        return kime

    def close(self) -> None:
        """Stop the worker. Requests that wait end with a `ClosedError`."""
        self._scheduler.close()
        self._lanes.close()

    def __enter__(self) -> Self:
        """The model itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # Deciding

    def decide(self, request: AnyRequest, *, scope: str = "") -> Response:
        """Answer a request.

        Args:
            request: a `Request`, or a dict in Laya's JSON form. Its cache mode holds for both caches, of
                answers and of questions' tokens: `bypass` neither reads nor writes, `refresh` only writes.
            scope: whose entries of the caches may serve it; scopes never see each other's.

        Raises:
            InvalidError: with every problem of the request.
            TooLongError: the options of a question do not fit its budget.
            TooManyTokensError: more tokens than the limits allow.
            BackendError, ClosedError: the device failed, or the engine was closed.
        """
        self._scheduler.check_process()
        asked = self._asking.ask(request, scope)
        return self._asking.respond(asked, self._scheduler.run(asked.unknown))

    async def decide_async(
        self,
        request: AnyRequest,
        *,
        scope: str = "",
        timeout: float | None = None,
        attempt: int = 0,
        caller: Hashable | None = None,
    ) -> Response:
        """Answer a request from an event loop, through the same queue. Cancelling drops what has not started.

        Args:
            request: a `Request`, or a dict in Laya's JSON form.
            scope: whose entries of the caches may serve it.
            timeout: seconds until the caller stops waiting; what is late is dropped unrun.
            attempt: how often the caller was refused before; the queue takes more of those who come back.
            caller: who asks, if it asks several things at once: callers take turns at the device.

        Raises:
            InvalidError, TooLongError, TooManyTokensError, BackendError, ClosedError: as `decide`.
            OverloadedError: too much waits to be read or run, or `timeout` could not be met.
            LateError: `timeout` passed in the queue.
        """
        self._scheduler.check_process()
        started = time.monotonic()
        asked = await self._off_loop(size_of(request), self._asking.ask, request, scope)
        outcome = await self._scheduler.run_async(asked.unknown, _rest(timeout, started), attempt, caller)
        try:
            return await self._off_loop(len(asked.known) * ANSWER_BYTES, self._asking.respond, asked, outcome)
        except OverloadedError:
            # What the device has done is not thrown away.
            return self._asking.respond(asked, outcome)

    def decide_batch(self, requests: Sequence[AnyRequest], *, scope: str = "") -> list[Response]:
        """Answer requests in shared batches. One bad request fails the call; raises as `decide` does."""
        return self.decide_batch_timed(requests, scope=scope)[0]

    def decide_batch_timed(
        self, requests: Sequence[AnyRequest], *, scope: str = ""
    ) -> tuple[list[Response], BatchTiming]:
        """Answer requests in shared batches, and say where the time went; raises as `decide` does."""
        self._scheduler.check_process()
        asked = [self._asking.ask(request, scope) for request in requests]
        unknown = [one.unknown for one in asked]
        outcome = self._scheduler.run([row for rows in unknown for row in rows])
        responses, start = [], 0
        for one, rows in zip(asked, unknown, strict=True):
            part = Outcome(
                outcome.outputs[start : start + len(rows)],
                outcome.queue if rows else 0.0,
                outcome.device if rows else 0.0,
                outcome.batches if rows else 0,
            )
            responses.append(self._asking.respond(one, part))
            start += len(rows)
        return responses, BatchTiming(
            tokenize=sum(one.prepared.seconds for one in asked),
            device=outcome.device,
            batches=outcome.batches,
            truncated=sum(len(r.usage.dropped) for r in responses),
            cut_tokens=sum(sum(r.usage.dropped.values()) for r in responses),
            cached=sum(len(r.usage.cached) for r in responses),
        )

    def cached(self, request: AnyRequest, *, scope: str = "") -> Response | None:
        """Answer a request from the answer cache alone, without the queue; None if it lacks any question.

        An invalid request, one without questions and one whose cache mode is not `use` give None and count
        neither hit nor miss.
        """
        self._scheduler.check_process()
        try:
            checked = self._asking.check(request)
            if not checked.questions or checked.cache is not CacheMode.USE:
                return None
            asked = self._asking.ask(checked, scope)
        except (InvalidError, TooLongError, TooManyTokensError):
            return None
        return None if asked.unknown else self._asking.respond(asked, Outcome(()))

    # Counting and embedding

    def count_tokens(self, request: AnyRequest) -> int:
        """The text tokens of the state once and of every question's head and options, before any cut.

        Markers and special tokens are left out.

        Raises:
            InvalidError: with every problem of the request.
            TooManyTokensError: more tokens than the limits allow.
        """
        return self.token_counts(request).total

    def token_counts(self, request: AnyRequest) -> TokenCounts:
        """What `count_tokens` counts, by part; raises as it does."""
        return self._asking.count(request)

    async def token_counts_async(self, request: AnyRequest) -> TokenCounts:
        """`token_counts` from an event loop; raises `OverloadedError` too, when too much waits to be read."""
        return await self._off_loop(size_of(request), self.token_counts, request)

    def embed(self, texts: Iterable[str], max_length: int = 512) -> NDArray[np.float32]:
        """The mean of the encoder's token vectors for each text, special tokens included.

        Args:
            texts: what to embed.
            max_length: how many tokens of each are read, special tokens included.

        Returns:
            float32, `[texts, hidden_size]`.

        Raises:
            InvalidError: a text that is none, or a length that the model does not take.
            TooManyTokensError: more tokens than the limits allow.
            BackendError, ClosedError: the device failed, or the engine was closed.
        """
        return self._vectors(self._scheduler.run(self._asking.lay_out_texts(texts, max_length)))

    async def embed_async(
        self, texts: Iterable[str], max_length: int = 512, *, timeout: float | None = None, attempt: int = 0
    ) -> Embedded:
        """`embed` from an event loop, with what it read; raises as `embed` and `decide_async` do."""
        started = time.monotonic()
        if not isinstance(texts, str) and isinstance(texts, Iterable):
            texts = list(texts)  # It is read twice, and a generator gives its own once.
        rows = await self._off_loop(size_of(texts), self._asking.lay_out_texts, texts, max_length)
        outcome = await self._scheduler.run_async(rows, _rest(timeout, started), attempt)
        return Embedded(
            self._vectors(outcome),
            tokens_of(rows),
            Timing(queue=outcome.queue, device=outcome.device, batches=outcome.batches),
        )

    # What it is

    @property
    def family(self) -> str:
        """The kind of encoder, such as `modernbert`."""
        return self._model.family

    @property
    def max_len(self) -> int:
        """The row's budget where a request gives none, in tokens."""
        return self._model.config.max_len

    @property
    def head_max_len(self) -> int:
        """The head's budget where a request gives none, in tokens."""
        return self._model.config.head_max_len

    @property
    def max_row_tokens(self) -> int:
        """The longest row that the model takes, in tokens."""
        return self._model.max_row_tokens

    @property
    def is_alive(self) -> bool:
        """Whether a worker is there to take what comes."""
        return self._scheduler.is_alive

    def memory(self) -> Memory:
        """Bytes of weights and of plans, as of the last forward. Takes no lock."""
        return Memory(self._model.weight_bytes, self._forward.plan_bytes)

    def cache_stats(self) -> CacheStats:
        """The answer cache's counters."""
        return self._asking.answers.stats()

    def question_cache_stats(self) -> QuestionCacheStats:
        """The counters of the cache of questions' tokens."""
        return self._asking.questions.stats()

    def queue_stats(self) -> QueueStats:
        """The queue's state and counters."""
        return self._scheduler.stats()

    def digest(self) -> str:
        """`sha256:` and the digest of the weights' file. Reads the whole file: keep it off event loops."""
        return self._model.files.digest(WEIGHTS_FILE)

    def warm_up(self) -> None:
        """Answer made-up questions in batches of several sizes: no caller waits for the first of each.

        What they cost says how many tokens a batch should have, and how long callers will wait.
        """
        question = Question("", QuestionType.NOUL, "Is it so?", ("false", "true"), (None, None))
        request = CheckedRequest("It is so, in a word or two. " * 4, (question,), cache=CacheMode.BYPASS)
        self.decide(request)
        self._scheduler.measure(self._asking.ask(request, "").unknown[0])

    # Steps

    async def _off_loop(self, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do work about a few bytes here, and about more of them off the event loop."""
        if size <= ON_LOOP_BYTES:
            return work(*args, **kwargs)
        return await off_loop(self._lanes, size, work, *args, **kwargs)

    def _vectors(self, outcome: Outcome) -> NDArray[np.float32]:
        if not outcome.outputs:
            return np.zeros((0, self._model.hidden_size), np.float32)
        return np.stack([output.embedding for output in outcome.outputs if output.embedding is not None])


def _rest(timeout: float | None, started: float) -> float | None:
    """What is left of a timeout, in seconds."""
    return None if timeout is None else timeout - (time.monotonic() - started)
