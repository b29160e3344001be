"""What the server asks of an engine. `Kime` is one; a stand-in for tests is another."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

from kime_grpc.core.answers import Response
from kime_grpc.core.calibration import Calibration
from kime_grpc.core.request import CheckedRequest, RequestLimits

if TYPE_CHECKING:
    from kime_grpc.engine.answer_cache import CacheStats
    from kime_grpc.engine.preparing import TokenCounts
    from kime_grpc.engine.reports import Embedded, QueueStats


class Engine(Protocol):
    """One model that answers. See `Kime` for what each of these does and raises."""

    limits: RequestLimits
    model_id: str
    revision: str
    precision: str
    device: str
    calibration: Calibration

    @property
    def family(self) -> str:
        """The kind of encoder."""

    @property
    def max_len(self) -> int:
        """The row's budget where a request gives none, in tokens."""

    @property
    def head_max_len(self) -> int:
        """The head's budget where a request gives none, in tokens."""

    @property
    def max_row_tokens(self) -> int:
        """The longest row that the model takes, in tokens."""

    @property
    def is_alive(self) -> bool:
        """Whether a worker is there to take what comes."""

    def queue_stats(self) -> QueueStats:
        """The queue's state and counters; from any thread, as what follows."""

    def cache_stats(self) -> CacheStats:
        """The answer cache's counters."""

    def question_cache_stats(self) -> CacheStats:
        """The counters of the cache of questions' tokens."""

    async def decide_async(
        self,
        request: CheckedRequest,
        *,
        scope: str = "",
        timeout: float | None = None,
        attempt: int = 0,
        caller: Hashable | None = None,
    ) -> Response:
        """Answer a request."""

    async def embed_async(
        self, texts: Sequence[str], max_length: int = 512, *, timeout: float | None = None, attempt: int = 0
    ) -> Embedded:
        """Embed texts."""

    async def token_counts_async(self, request: CheckedRequest) -> TokenCounts:
        """Count a request's tokens."""

    def warm_up(self) -> None:
        """Decide something made up; blocks."""

    def digest(self) -> str:
        """The digest of the weights' file; blocks while it reads the whole of it."""
