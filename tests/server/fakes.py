"""An engine whose answers are made up from the request, and whose work ends when a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from kime_grpc.core.answers import (
    Answer,
    ChoiceAnswer,
    Confidence,
    NoulAnswer,
    Response,
    ScoreAnswer,
    Timing,
    Usage,
)
from kime_grpc.core.calibration import Calibration
from kime_grpc.core.json_text import to_text
from kime_grpc.core.request import CheckedRequest, Question, QuestionType, RequestLimits
from kime_grpc.engine.answer_cache import CacheStats
from kime_grpc.engine.preparing import QuestionTokens, TokenCounts
from kime_grpc.engine.reports import Embedded, QueueStats

CONFIDENCE = Confidence(entropy=0.25, margin=0.5, answer=0.75, act=0.125)


class FakeEngine:
    """Stands in for `Kime`. Texts count a token a character.

    A state in `errors` raises what stands there; what is in `refusals` is raised first, one a call. While
    `go` is clear, what has begun waits.
    """

    revision = "main"
    precision = "f32"
    device = "cpu, 1 thread, f32"
    family = "fake"
    max_len = 512
    head_max_len = 256
    max_row_tokens = 1024

    def __init__(self, limits: RequestLimits | None = None) -> None:
        self.limits = limits or RequestLimits()
        self.model_id = "fake"
        self.calibration = Calibration.from_config([1.0, 1.0, 1.0], {})
        self.is_alive = True
        self.errors: dict[str, BaseException] = {}
        self.refusals: list[Exception] = []
        self.go = asyncio.Event()
        self.go.set()
        self.asked: list[CheckedRequest] = []
        self.scopes: list[str] = []
        self.timeouts: list[float | None] = []
        self.attempts: list[int] = []
        self.callers: list[Hashable | None] = []
        self.cancelled: list[str] = []
        self.running = 0
        self.most_running = 0
        self.warm_ups = 0
        self.warm_up_error: Exception | None = None
        self.digests = 0
        self.threads: list[str] = []
        self.queue = QueueStats(*[0] * 14)
        self.answer_cache = self.question_cache = CacheStats(0, 0, 0, 0)
        self._changed = asyncio.Condition()

    async def until(self, is_so: Callable[[FakeEngine], bool]) -> None:
        """Wait until something holds of this engine's counters."""
        async with self._changed:
            await self._changed.wait_for(lambda: is_so(self))

    async def decide_async(
        self,
        request: CheckedRequest,
        *,
        scope: str = "",
        timeout: float | None = None,
        attempt: int = 0,
        caller: Hashable | None = None,
    ) -> Response:
        self.callers.append(caller)
        self.asked.append(request)
        self.scopes.append(scope)
        self.timeouts.append(timeout)
        self.attempts.append(attempt)
        async with self._working(to_text(request.state)):
            return Response(
                model=self.model_id,
                revision=self.revision,
                calibration_id=self.calibration.id,
                answers={question.key: answer_to(question) for question in request.questions},
                usage=Usage(input_tokens=len(to_text(request.state))),
                timing=Timing(queue=0.25, tokenize=0.5, device=0.125, batches=1),
            )

    async def embed_async(
        self, texts: Sequence[str], max_length: int = 512, *, timeout: float | None = None, attempt: int = 0
    ) -> Embedded:
        self.timeouts.append(timeout)
        self.attempts.append(attempt)
        async with self._working(texts[0] if texts else ""):
            read = [text[:max_length] for text in texts]
            vectors = np.array([[len(text), 3.0, 4.0] for text in read], np.float32).reshape(-1, 3)
            return Embedded(vectors, sum(map(len, read)), Timing(device=0.125, batches=1))

    async def token_counts_async(self, request: CheckedRequest) -> TokenCounts:
        async with self._working(to_text(request.state)):
            return TokenCounts(
                state=len(to_text(request.state)),
                questions={
                    question.key: QuestionTokens(
                        instructions=len(to_text(question.instructions)),
                        options=sum(len(str(part)) for part in question.labels),
                    )
                    for question in request.questions
                },
            )

    def queue_stats(self) -> QueueStats:
        return self.queue

    def cache_stats(self) -> CacheStats:
        return self.answer_cache

    def question_cache_stats(self) -> CacheStats:
        return self.question_cache

    def warm_up(self) -> None:
        self.warm_ups += 1
        self.threads.append(threading.current_thread().name)
        if self.warm_up_error is not None:
            raise self.warm_up_error

    def digest(self) -> str:
        self.digests += 1
        self.threads.append(threading.current_thread().name)
        return "sha256:" + "0" * 64

    @asynccontextmanager
    async def _working(self, state: str) -> Any:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await self._tell()
        try:
            await self.go.wait()
            if self.refusals:
                raise self.refusals.pop(0)
            if state in self.errors:
                raise self.errors[state]
            yield
        except asyncio.CancelledError:
            self.cancelled.append(state)
            raise
        finally:
            self.running -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def answer_to(question: Question) -> Answer:
    """The first option is the most probable; every probability has more digits than anyone rounds to."""
    options = max(1, len(question.descriptions))
    rest = 1 / (3 * options)
    probabilities = (1 - rest * (options - 1), *[rest] * (options - 1))
    if question.type is QuestionType.CHOICE:
        return ChoiceAnswer(question.labels[0], question.labels, probabilities, CONFIDENCE)
    if question.type is QuestionType.SCORE:
        return ScoreAnswer(1 / 3, question.descriptions, probabilities, CONFIDENCE)
    return NoulAnswer(1 / 7, (str(question.labels[0]), str(question.labels[1])), (6 / 7, 1 / 7), CONFIDENCE)
