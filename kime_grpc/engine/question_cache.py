"""Token ids of question texts, so that questions that are asked again and again are tokenized once.

Keyed by scope and by the texts as the model reads them. Tokenizing is a function of the text alone, so what
is found here is what the tokenizer would say again.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from kime_grpc.core.rendering import QuestionTexts
from kime_grpc.engine.answer_cache import CacheStats

# What an entry takes beside its ids: the key, the objects, the places in the cache's own tables.
ENTRY_BYTES = 512
# An entry may take this share of the cache, so that one huge question does not drive out all others.
LARGEST_SHARE = 8


@dataclass(frozen=True, slots=True)
class QuestionCacheStats(CacheStats):
    """The cache's counters; all 0 when it is off. `capacity` and `size`, what is held, are in bytes."""

    size: int


@dataclass(frozen=True, slots=True)
class QuestionIds:
    """The token ids of one question's texts: its head's, and each option's in slot order."""

    head: Sequence[int]
    options: Sequence[Sequence[int]]


class QuestionCache:
    """The least recently used questions go first. Safe from any thread."""

    def __init__(self, capacity: int) -> None:
        """Keep up to `capacity` bytes; 0 keeps none."""
        self._capacity = capacity
        self._entries: LRUCache[bytes, _Entry] = LRUCache(
            maxsize=capacity, getsizeof=lambda entry: entry.size
        )
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def look_up(self, scope: str, questions: Sequence[QuestionTexts]) -> list[QuestionIds | None]:
        """What is known of each question in this scope. Counts hits and misses."""
        if not self._capacity:
            return [None] * len(questions)
        keys = [_key(scope, texts) for texts in questions]
        with self._lock:
            found = [self._entries.get(key) for key in keys]
            hits = sum(entry is not None for entry in found)
            self._hits += hits
            self._misses += len(found) - hits
        return [None if entry is None else entry.unpacked() for entry in found]

    def keep(self, scope: str, texts: QuestionTexts, ids: QuestionIds) -> None:
        """Remember a question's ids, unless they take too much of the cache."""
        if not self._capacity:
            return
        entry = _Entry.packed(ids)
        if entry.size <= self._capacity // LARGEST_SHARE:
            key = _key(scope, texts)
            with self._lock:
                self._entries[key] = entry

    def stats(self) -> QuestionCacheStats:
        """The counters as of now."""
        with self._lock:
            return QuestionCacheStats(
                self._capacity, len(self._entries), self._hits, self._misses, int(self._entries.currsize)
            )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A question's ids in little room: all of them in one array, and where each text's end in it."""

    ids: array[int]
    ends: array[int]

    @classmethod
    def packed(cls, question: QuestionIds) -> _Entry:
        texts = [question.head, *question.options]
        return cls(
            array("I", list(itertools.chain.from_iterable(texts))),
            array("I", list(itertools.accumulate(map(len, texts)))),
        )

    def unpacked(self) -> QuestionIds:
        bounds = itertools.pairwise(self.ends)
        return QuestionIds(self.ids[: self.ends[0]], [self.ids[start:end] for start, end in bounds])

    @property
    def size(self) -> int:
        """Bytes."""
        return ENTRY_BYTES + self.ids.itemsize * len(self.ids) + self.ends.itemsize * len(self.ends)


def _key(scope: str, texts: QuestionTexts) -> bytes:
    """A digest of the scope and of the texts; their sizes are in it, so that no two questions read alike."""
    digest = hashlib.blake2b(digest_size=20)
    for text in (scope, texts.head, *texts.options):
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.digest()
