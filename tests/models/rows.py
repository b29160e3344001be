"""Random rows, laid out as the engine lays them out, and comparisons of what the model says of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from kime_grpc.core.layout import Row, lay_out_head, lay_out_row
from kime_grpc.models.model import Model, RowOutput

# Every checkpoint of the tests has more tokens than this, and its special tokens come first.
TOKENS = range(5, 500)


class Rows:
    """A source of random rows for one model."""

    def __init__(self, model: Model, seed: int = 0) -> None:
        self._model = model
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def ids(self, count: int) -> list[int]:
        return self._random.choices(TOKENS, k=count)

    def decided(self, *, options: int, state: int, max_len: int = 256) -> Row:
        """A row with that many options and up to that many tokens of state."""
        head = lay_out_head(
            self.ids(self._random.randint(0, 20)),
            [self.ids(self._random.randint(0, 9)) for _ in range(options)],
            self._model.tokenizer.special,
            96,
        )
        row, fit = lay_out_row(
            head,
            self.ids(state),
            self._model.tokenizer.special,
            self._random.randrange(3),
            max_len,
            parallel=self._model.config.parallel,
        )
        assert fit.markers == options
        return row

    def embedded(self, tokens: int) -> Row:
        return Row(tuple(self.ids(tokens)))

    def any(self) -> Row:
        """A row of any kind and length, around the lengths where the model takes another path."""
        if self._random.random() < 0.2:
            return self.embedded(self._random.choice((1, 2, 17, 40, 130)))
        options, state = self._random.choice((1, 2, 3, 9)), self._random.choice((0, 3, 30, 100, 400))
        return self.decided(options=options, state=state)

    def batches(self, rows: int, count: int) -> Iterator[list[int]]:
        """Random batches of `rows` rows, by index: the first row in every one, the others by chance."""
        for _ in range(count):
            batch = [0, *self._random.sample(range(1, rows), k=self._random.randrange(rows))]
            self._random.shuffle(batch)
            yield batch


def same_bits(one: RowOutput, other: RowOutput) -> bool:
    if one.embedding is None or other.embedding is None:
        return np.array_equal(one.logits, other.logits) and np.array_equal(one.act, other.act)
    return np.array_equal(one.embedding, other.embedding)
