"""What the device said of rows it has seen, so that it need not be asked again.

Honest only because a row's logits never depend on what else was in its batch. Kept are logits, not answers:
labels and temperatures are applied again, so callers with other labels for the same row share an entry.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from dataclasses import dataclass

from cachetools import LRUCache

from kime_grpc.core.layout import Row
from kime_grpc.models.model import RowOutput


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The cache's counters; all 0 when it is off."""

    capacity: int
    entries: int
    hits: int
    misses: int


class AnswerCache:
    """The least recently used rows go first. Safe from any thread."""

    def __init__(self, capacity: int) -> None:
        """Keep up to `capacity` rows; 0 keeps none."""
        self._capacity = capacity
        self._rows: LRUCache[bytes, RowOutput] = LRUCache(maxsize=capacity)
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def look_up(self, scope: str, rows: tuple[Row, ...]) -> list[RowOutput | None]:
        """What is known of each row in this scope. Counts hits and misses."""
        if not self._capacity:
            return [None] * len(rows)
        keys = [_key(scope, row) for row in rows]
        with self._lock:
            found = [self._rows.get(key) for key in keys]
            hits = sum(output is not None for output in found)
            self._hits += hits
            self._misses += len(found) - hits
        return found

    def keep(self, scope: str, row: Row, output: RowOutput) -> None:
        """Remember what the device said of a row."""
        if self._capacity:
            with self._lock:
                self._rows[_key(scope, row)] = output

    def stats(self) -> CacheStats:
        """The counters as of now."""
        with self._lock:
            return CacheStats(self._capacity, len(self._rows), self._hits, self._misses)


def _key(scope: str, row: Row) -> bytes:
    """A digest of the scope and of everything in a row that the model reads."""
    digest = hashlib.blake2b(digest_size=20)
    name = scope.encode()
    digest.update(len(name).to_bytes(8, "little"))
    digest.update(name)
    parts = (row.ids, row.markers, (row.type_index,), row.position_ids or (), row.option_ids or ())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(array("q", part).tobytes())
    return digest.digest()
