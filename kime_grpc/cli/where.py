"""Who answers: a running server, or a model in this process. Both behind one face."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import grpc
import typer

from kime_grpc.client import CallError, Client, Tls, calls
from kime_grpc.core.answers import Response
from kime_grpc.core.errors import KimeError
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.request import CheckedRequest, Request

if TYPE_CHECKING:
    from kime_grpc.engine.kime import Kime

DEFAULT_TARGET = "localhost:50051"
DEFAULT_MAX_LENGTH = 512
# Texts in one call of Embed, in characters, so that a message stays far below every limit.
_CALL_CHARACTERS = 500_000

_OF_ONE_REQUEST = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNIMPLEMENTED,
)

_In = TypeVar("_In")
_Out = TypeVar("_Out")

Vector: TypeAlias = Sequence[float]


class HeadTokens(Protocol):
    """The tokens of one question's head."""

    @property
    def instructions(self) -> int:
        """Of its type and instructions."""

    @property
    def options(self) -> int:
        """Of its options."""


class Counts(Protocol):
    """Token counts, in process or from a server."""

    @property
    def total(self) -> int:
        """All of them."""

    @property
    def state(self) -> int:
        """The state's."""

    @property
    def questions(self) -> Mapping[Any, HeadTokens]:
        """Each question's."""


@dataclass(frozen=True, slots=True)
class Where:
    """What the options say of who answers.

    Attributes:
        model: a model to open here, or with a target the server's id of one; None for the default.
        local: open the model here.
        target: the server; None where the command line names none.
        token: for the server.
        tls: for the server; None for plaintext.
        plaintext_token: send the token over plaintext to other machines too.
        device: where a model that is opened here runs.
    """

    model: str | None
    local: bool
    target: str | None
    token: str | None
    tls: Tls | None
    plaintext_token: bool
    device: str

    def __post_init__(self) -> None:
        if self.local and self.target is not None:
            raise typer.BadParameter(
                "--local answers in this process and --target elsewhere; give one of them"
            )

    @property
    def is_here(self) -> bool:
        """Whether a model in this process answers."""
        return self.local or (self.model is not None and self.target is None)

    @contextlib.contextmanager
    def open(self) -> Iterator[Here | There]:
        """Who answers, for as long as the context lasts."""
        if self.is_here:
            with open_model(self.model, self.device) as kime:
                yield Here(kime)
        else:
            with self.client() as client:
                yield There(client, self.model)

    def client(self) -> Client:
        """A client of the server."""
        return Client(
            self.target or DEFAULT_TARGET,
            token=self.token,
            tls=self.tls,
            plaintext_token=self.plaintext_token,
        )


@contextlib.contextmanager
def open_model(model: str | None, device: str) -> Iterator[Kime]:
    """A model in this process."""
    from kime_grpc.engine.kime import Kime

    with Kime.open(model, device) as kime:
        yield kime


class Here:
    """A model in this process answers."""

    def __init__(self, kime: Kime) -> None:
        """Answer with an open model."""
        self.kime = kime

    def decide(self, request: Request) -> Response:
        """Answer one request."""
        return self.kime.decide(request)

    def decide_all(self, forms: Sequence[Any]) -> list[Response | KimeError]:
        """Answer requests in Laya's JSON form in shared batches; a bad one gets its error."""
        said: list[Any] = [_tried(self._parsed, form) for form in forms]
        good = [request for request in said if not isinstance(request, KimeError)]
        answers = iter(_all_or_each(lambda requests: self.kime.decide_batch_timed(requests)[0], good))
        return [request if isinstance(request, KimeError) else next(answers) for request in said]

    def embed_all(
        self, texts: Sequence[Any], max_length: int, *, unit_norm: bool
    ) -> list[Vector | KimeError]:
        """A vector for each text; a bad one gets its error. A length of 0 stands for the usual one."""
        length = max_length or min(DEFAULT_MAX_LENGTH, self.kime.max_row_tokens)

        def embed(texts: Sequence[Any]) -> list[Vector]:
            vectors: list[Vector] = self.kime.embed(texts, length).tolist()
            return [_scaled(vector) for vector in vectors] if unit_norm else vectors

        return _all_or_each(embed, texts)

    def count_all(self, forms: Sequence[Any]) -> list[Counts | KimeError]:
        """Count the tokens of requests in Laya's JSON form; a bad one gets its error."""
        return [_tried(lambda form: self.kime.token_counts(self._parsed(form)), form) for form in forms]

    def _parsed(self, form: Any) -> CheckedRequest:
        return parse_request(form, self.kime.limits, self.kime.max_row_tokens)


class There:
    """A server answers."""

    def __init__(self, client: Client, model: str | None) -> None:
        """Answer with a client, by a model of the server."""
        self.client = client
        self.model = model

    def decide(self, request: Request) -> Response:
        """Answer one request."""
        return self.client.decide(request, model=self.model)

    def embed_all(
        self, texts: Sequence[Any], max_length: int, *, unit_norm: bool
    ) -> list[Vector | KimeError]:
        """A vector for each text; a bad one gets its error. A length of 0 stands for the usual one."""

        def embed(texts: Sequence[Any]) -> list[Vector]:
            return [*self.client.embed(texts, max_length or None, unit_norm=unit_norm, model=self.model)]

        return [vector for part in _parts(texts) for vector in _all_or_each(embed, part)]

    def count_all(self, forms: Sequence[Any]) -> list[Counts | KimeError]:
        """Count the tokens of requests in Laya's JSON form; a bad one gets its error."""
        return [_tried(self._count, form) for form in forms]

    def _count(self, form: Any) -> Counts:
        calls.check(form)
        return self.client.count_tokens(form["state"], form["questions"], model=self.model)


def _all_or_each(
    answer: Callable[[Sequence[_In]], Sequence[_Out]], asked: Sequence[_In]
) -> list[_Out | KimeError]:
    """What one call for all gives; if that fails for one of them, what each alone gives, be it an error."""
    if not asked:
        return []
    try:
        return [*answer(asked)]
    except KimeError as error:
        if _concerns_all(error):
            raise
    return [_tried(lambda one: answer([one])[0], one) for one in asked]


def _tried(answer: Callable[[_In], _Out], asked: _In) -> _Out | KimeError:
    try:
        return answer(asked)
    except KimeError as error:
        if _concerns_all(error):
            raise
        return error


def _concerns_all(error: KimeError) -> bool:
    """Whether it is the server that fails, not what it was asked."""
    return isinstance(error, CallError) and error.code not in _OF_ONE_REQUEST


def _parts(texts: Sequence[Any]) -> Iterator[list[Any]]:
    """The texts in parts that fit in a message."""
    part: list[Any] = []
    size = 0
    for text in texts:
        length = len(text) if isinstance(text, str) else 0
        if part and size + length > _CALL_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(text)
        size += length
    if part:
        yield part


def _scaled(vector: Vector) -> Vector:
    norm = math.sqrt(math.fsum(value * value for value in vector))
    return [value / norm for value in vector] if norm else vector
