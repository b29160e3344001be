"""What is done for a request beside the device's work: check it, lay it out, look it up, make the response.

Knows no queue and no thread; safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kime_grpc.core.answers import Response, Timing
from kime_grpc.core.calibration import Calibration
from kime_grpc.core.errors import TooManyTokensError
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.layout import Row
from kime_grpc.core.request import CacheMode, CheckedRequest, Request, RequestLimits
from kime_grpc.engine.answer_cache import AnswerCache
from kime_grpc.engine.assembling import answer, usage
from kime_grpc.engine.preparing import Prepared, TokenCounts, count_tokens, prepare, prepare_texts
from kime_grpc.engine.question_cache import QuestionCache
from kime_grpc.engine.reports import Outcome
from kime_grpc.models.model import Model, RowOutput

AnyRequest: TypeAlias = Request | CheckedRequest | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request on its way.

    Attributes:
        prepared: the request, ready for the device.
        known: what the answer cache has of each of its rows.
        scope: whose entries of the caches may serve it.
    """

    prepared: Prepared
    known: list[RowOutput | None]
    scope: str

    @property
    def unknown(self) -> list[Row]:
        """The rows that the device has to run."""
        return [row for row, output in zip(self.prepared.rows, self.known, strict=True) if output is None]


class Asking:
    """One model's way from requests to rows, and back from outputs to responses."""

    def __init__(
        self,
        model: Model,
        name: tuple[str, str],
        calibration: Calibration,
        limits: RequestLimits,
        *,
        answer_cache: int,
        question_cache: int,
    ) -> None:
        """Start with empty caches.

        Args:
            model: lays rows out.
            name: its id and revision.
            calibration: the temperatures.
            limits: how much a request may hold.
            answer_cache: how many rows' outputs to remember.
            question_cache: how many bytes of questions' tokens to remember.
        """
        self.answers = AnswerCache(answer_cache)
        self.questions = QuestionCache(question_cache)
        self._model = model
        self._name = name
        self._calibration = calibration
        self._limits = limits

    def check(self, request: AnyRequest) -> CheckedRequest:
        """A request that is known to be good. Raises `InvalidError`."""
        if isinstance(request, CheckedRequest):
            return request
        return parse_request(request, self._limits, self._model.max_row_tokens)

    def ask(self, request: AnyRequest, scope: str) -> Asked:
        """Lay a request out, and look its rows up.

        Raises:
            InvalidError, TooLongError, TooManyTokensError
        """
        prepared = prepare(self.check(request), self._model, self.questions, scope)
        self._check_tokens(tokens_of(prepared.rows))
        known: list[RowOutput | None] = [None] * len(prepared.rows)
        if prepared.request.cache is CacheMode.USE:
            known = self.answers.look_up(scope, prepared.rows)
        return Asked(prepared, known, scope)

    def respond(self, asked: Asked, outcome: Outcome) -> Response:
        """The response, once the device has run what was unknown; remembers what it said."""
        prepared = asked.prepared
        fresh = iter(outcome.outputs)
        answers = {}
        keep = prepared.request.cache is not CacheMode.BYPASS
        for question, row, hit in zip(prepared.request.questions, prepared.rows, asked.known, strict=True):
            output = next(fresh) if hit is None else hit
            if hit is None and keep:
                self.answers.keep(asked.scope, row, output)
            answers[question.key] = answer(question, output, self._calibration)
        model_id, revision = self._name
        return Response(
            model=model_id,
            revision=revision,
            calibration_id=self._calibration.id,
            answers=answers,
            usage=usage(prepared, [output is not None for output in asked.known]),
            timing=Timing(outcome.queue, prepared.seconds, outcome.device, outcome.batches),
        )

    def count(self, request: AnyRequest) -> TokenCounts:
        """Count a request's tokens. Raises `InvalidError` and `TooManyTokensError`."""
        counts = count_tokens(self.check(request), self._model)
        self._check_tokens(counts.total)
        return counts

    def lay_out_texts(self, texts: Iterable[str], max_length: int) -> tuple[Row, ...]:
        """Rows of texts to embed. Raises `InvalidError` and `TooManyTokensError`."""
        rows = prepare_texts(texts, max_length, self._model)
        self._check_tokens(tokens_of(rows))
        return rows

    def _check_tokens(self, tokens: int) -> None:
        if self._limits.tokens is not None and tokens > self._limits.tokens:
            raise TooManyTokensError(tokens, self._limits.tokens)


def tokens_of(rows: Sequence[Row]) -> int:
    """Tokens of all the rows."""
    return sum(len(row.ids) for row in rows)
