"""Every error that the package raises on purpose, in one tree.

    KimeError
    ├── InvalidError          the request does not validate; carries every problem at once
    ├── TooLongError          the options of a question do not fit the checkpoint's budget
    ├── TooManyTokensError    the request's rows have more tokens than are taken
    ├── TooLargeError         the request's message has more bytes than are taken
    ├── MalformedError        the request's bytes are no message, or no JSON
    ├── NotFoundError         no such model (or a hub model that was never pulled)
    ├── ModelError            a checkpoint that cannot be opened: config, tensors, sizes
    ├── TokenizerError        a tokenizer file that is missing, broken or lacks a special token
    ├── BackendError          the device failed, or its numbers are not finite
    ├── UnsupportedError      asked for something that this model, precision or device cannot do
    ├── OverloadedError       the queue is full, or the deadline cannot be met
    ├── LateError             the deadline passed before the answer was ready
    ├── DrainingError         the server is stopping and takes no new work
    └── ClosedError           the engine was closed, or its worker was restarted, while the request waited
        └── WorkerRestartedError

None of them knows a transport's codes: the server maps them in one table, the client has its own
`CallError` for what a server said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class KimeError(Exception):
    """The root of the tree. `reason` is a short, stable, upper-case word for programs."""

    reason: ClassVar[str] = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a request.

    Attributes:
        path: where, in the caller's own terms, such as `questions["team"].criteria[1]`.
        kind: a stable lower-case word for programs, such as `missing` or `duplicate`.
        message: a sentence for the person who reads it: what is wrong and what to do.
        value: the offending value, or None where there is none.
    """

    path: str
    kind: str
    message: str
    value: Any = None


class InvalidError(KimeError):
    """The request does not validate.

    Attributes:
        problems: every one of them, in the order of the request; the first of them where there are hundreds.
        total: how many there are.
    """

    reason: ClassVar[str] = "INVALID"

    def __init__(self, problems: Sequence[Problem], total: int | None = None) -> None:
        self.problems = tuple(problems)
        self.total = len(self.problems) if total is None else total
        sentences = [f"{p.path}: {p.message}" if p.path else p.message for p in self.problems]
        if self.total > len(self.problems):
            sentences.append(f"and {self.total - len(self.problems)} more problems")
        super().__init__("; ".join(sentences))


class TooLongError(KimeError):
    """A question has more options than its budget leaves room for.

    Attributes:
        question_id: the question.
        options: how many options it has.
        fit: how many of their markers fit.
    """

    reason: ClassVar[str] = "TOO_LONG"

    def __init__(self, question_id: str, options: int, fit: int, max_len: int, head_max_len: int) -> None:
        self.question_id, self.options, self.fit = question_id, options, fit
        self.max_len, self.head_max_len = max_len, head_max_len
        super().__init__(
            f"question {question_id!r}: only {fit} of its {options} options fit in max_len={max_len} with "
            f"head_max_len={head_max_len}; use fewer or shorter options, or raise max_len"
        )


class TooManyTokensError(KimeError):
    """The request's rows have more tokens, `tokens`, than the `limit`."""

    reason: ClassVar[str] = "TOO_MANY_TOKENS"

    def __init__(self, tokens: int, limit: int) -> None:
        self.tokens, self.limit = tokens, limit
        super().__init__(f"{tokens} tokens in all rows, and at most {limit} are taken; split the request")


class TooLargeError(KimeError):
    """The request's message has more bytes, `size`, than the `limit`."""

    reason: ClassVar[str] = "TOO_LARGE"

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(f"a message of {size} bytes, and at most {limit} are taken; split the request")


class MalformedError(KimeError):
    """The request's bytes are no message of the contract, or a line of text is no JSON."""

    reason: ClassVar[str] = "MALFORMED"


class NotFoundError(KimeError):
    """No such model.

    Attributes:
        name: what was asked for.
        available: the models that there are, where that is known.
    """

    reason: ClassVar[str] = "NOT_FOUND"

    def __init__(self, message: str, *, name: str = "", available: Sequence[str] = ()) -> None:
        self.name, self.available = name, tuple(available)
        super().__init__(message)


class ModelError(KimeError):
    """A checkpoint that cannot be opened."""

    reason: ClassVar[str] = "MODEL"


class TokenizerError(KimeError):
    """A tokenizer that cannot be opened."""

    reason: ClassVar[str] = "TOKENIZER"


class BackendError(KimeError):
    """The device failed on this request, or gave numbers that are not finite."""

    reason: ClassVar[str] = "BACKEND"


class UnsupportedError(KimeError):
    """Something that this model, precision or device cannot do."""

    reason: ClassVar[str] = "UNSUPPORTED"


class OverloadedError(KimeError):
    """More work is waiting than the engine takes. `retry_after` is in seconds."""

    reason: ClassVar[str] = "OVERLOADED"

    def __init__(self, message: str, *, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class LateError(KimeError):
    """The deadline passed before the answer was ready."""

    reason: ClassVar[str] = "LATE"


class DrainingError(KimeError):
    """The server is stopping and takes no new work; another replica is ready."""

    reason: ClassVar[str] = "DRAINING"


class ClosedError(KimeError):
    """The engine was closed while the request waited."""

    reason: ClassVar[str] = "CLOSED"


class WorkerRestartedError(ClosedError):
    """The device's worker died while it held the request; another try is served by a new one."""

    reason: ClassVar[str] = "WORKER_RESTARTED"
