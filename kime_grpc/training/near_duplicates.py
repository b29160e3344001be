"""States that are nearly the same, so that a model is not judged by what it has learnt by heart."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

SHINGLE = 5  # words
# The share of the shorter text's shingles that also stand in the other.
ALIKE = 0.3
# What more texts than this share is an idiom, or a key of JSON.
COMMON = 50

_WORDS = re.compile(r"\w+")


def near_duplicates(texts: Sequence[str], others: Sequence[str] | None = None) -> list[tuple[int, int]]:
    """The pairs of texts of which more than `ALIKE` of the shorter one's shingles stand in the other.

    A text of fewer words than a shingle has is one shingle.

    Args:
        texts: the texts.
        others: what they are compared with; None for each other.

    Returns:
        (index in `texts`, index in `others`), sorted; with `others` None the first index is the smaller one.
    """
    left = [_shingles(text) for text in texts]
    right = left if others is None else [_shingles(text) for text in others]
    where: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, found in enumerate(right):
        for shingle in found:
            where[shingle].append(number)
    shared: Counter[tuple[int, int]] = Counter()
    for one, found in enumerate(left):
        for shingle in found:
            shared.update(_pairs(one, where.get(shingle, []), apart=others is None))
    return sorted(
        (one, other)
        for (one, other), count in shared.items()
        if count > ALIKE * min(len(left[one]), len(right[other]))
    )


def _pairs(one: int, numbers: Sequence[int], *, apart: bool) -> Iterator[tuple[int, int]]:
    if len(numbers) < COMMON:
        yield from ((one, other) for other in numbers if not apart or one < other)


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = _WORDS.findall(text.lower())
    return frozenset(tuple(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1)))
