"""Examples to padded batches of rows, in an order that depends on the seed alone.

What a step reads is a function of the seed, the step and the data: so a run that was stopped goes on exactly
where it was, and two runs read the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from kime_grpc.core.json_text import to_text
from kime_grpc.core.layout import Row, SpecialTokens, lay_out_head, lay_out_row
from kime_grpc.core.rendering import option_texts, render_question, render_state
from kime_grpc.core.request import Question
from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.augmentation import augmented, reversed_order
from kime_grpc.training.examples import Example
from kime_grpc.training.settings import TrainSettings

# Batches are cut from pools of this many, sorted by length, so that rows of a batch are about equally long.
POOL_BATCHES = 64


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for the network. Slots are options as they stand in a row; `options` is the most that any row has.

    Attributes:
        ids: int64 `[rows, tokens]`, padded with 0.
        is_token: bool `[rows, tokens]`.
        segments: int64 `[rows, tokens]`: 1 for the instructions, then a number an option, with its marker,
            the highest for the state; 0 elsewhere.
        types: int64 `[rows]`, the questions' types.
        markers: int64 `[rows, options]`, the marker of each slot; 0 where there is none.
        is_slot: bool `[rows, options]`.
        order: int64 `[rows, options]`, the option that each slot shows.
        targets: float32 `[rows, options]`, the slots' probabilities.
        twins: int64 `[pairs, 2]`, rows that ask the same in opposite orders.
    """

    ids: Tensor
    is_token: Tensor
    segments: Tensor
    types: Tensor
    markers: Tensor
    is_slot: Tensor
    order: Tensor
    targets: Tensor
    twins: Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on a device."""
        return Batch(*(getattr(self, item.name).to(device) for item in fields(self)))


class Batcher:
    """Makes batches for one tokenizer and one pair of budgets."""

    def __init__(self, tokenizer: TextTokenizer, max_len: int, head_max_len: int) -> None:
        """Lay rows out within these budgets, in tokens."""
        self._tokenizer = tokenizer
        self._max_len, self._head_max_len = max_len, head_max_len

    def training(
        self, examples: Sequence[Example], settings: TrainSettings, first_step: int = 0, parts: int = 1
    ) -> Iterator[list[Batch]]:
        """Endless batches, augmented, from a step on, each in so many parts, or fewer where it is small."""
        size = settings.batch
        step = 0
        for epoch, order in enumerate(_epochs(examples, settings)):
            for start in range(0, len(order), size):
                step += 1
                if step <= first_step:
                    continue
                chosen = order[start : start + size]
                yield [
                    self._part(examples, chosen[part::parts], settings, epoch)
                    for part in range(min(parts, len(chosen)))
                ]

    def _part(
        self, examples: Sequence[Example], chosen: Sequence[int], settings: TrainSettings, epoch: int
    ) -> Batch:
        changed, twins = [], []
        for index in chosen:
            rng = random.Random(f"{settings.seed}:{epoch}:{index}")  # noqa: S311
            changed.append(augmented(examples[index], settings, rng))
            if rng.random() < settings.consistency:
                twins.append(len(changed) - 1)
        pairs = [(of, len(changed) + i) for i, of in enumerate(twins)]
        return self.batch([*changed, *(_reversed(changed[of]) for of in twins)], pairs)

    def batch(self, examples: Sequence[Example], twins: Sequence[tuple[int, int]] = ()) -> Batch:
        """One batch of some examples, as they are.

        Raises:
            ValueError: a question's options do not fit the budgets.
        """
        rows = [self._row(example) for example in examples]
        orders = [_order(example.question) for example in examples]
        tokens = max(len(row.ids) for row in rows)
        options = max(len(row.markers) for row in rows)
        batch = Batch(
            ids=torch.zeros(len(rows), tokens, dtype=torch.long),
            is_token=torch.zeros(len(rows), tokens, dtype=torch.bool),
            segments=torch.zeros(len(rows), tokens, dtype=torch.long),
            types=torch.tensor([row.type_index for row in rows]),
            markers=torch.zeros(len(rows), options, dtype=torch.long),
            is_slot=torch.zeros(len(rows), options, dtype=torch.bool),
            order=torch.arange(options).repeat(len(rows), 1),
            targets=torch.zeros(len(rows), options),
            twins=torch.tensor(list(twins), dtype=torch.long).reshape(-1, 2),
        )
        for i, (row, order, example) in enumerate(zip(rows, orders, examples, strict=True)):
            batch.ids[i, : len(row.ids)] = torch.tensor(row.ids)
            batch.is_token[i, : len(row.ids)] = True
            batch.segments[i, : len(row.ids)] = torch.tensor(_segments(row, self._tokenizer.special))
            batch.markers[i, : len(order)] = torch.tensor(row.markers)
            batch.is_slot[i, : len(order)] = True
            batch.order[i, : len(order)] = torch.tensor(order)
            batch.targets[i, : len(order)] = torch.tensor([example.target[option] for option in order])
        return batch

    def _row(self, example: Example) -> Row:
        special = self._tokenizer.special
        rendered = render_question(example.question, special.mask_literal)
        state = render_state(example.state, special.mask_literal)
        keep_end = isinstance(example.state, list)
        (state_ids, head_ids, *options), _ = self._tokenizer.encode(
            [state, rendered.head, *rendered.options], self._max_len, keep_first_end=keep_end
        )
        head = lay_out_head(head_ids, options, special, self._head_max_len)
        row, fit = lay_out_row(
            head, state_ids, special, example.question.type, self._max_len, keep_end=keep_end
        )
        if fit.markers < fit.options:
            raise ValueError(
                f"{example.where}: question {example.question.id!r} has {fit.options} options, of which "
                f"{fit.markers} fit in max_len={self._max_len}"
            )
        return row


def _epochs(examples: Sequence[Example], settings: TrainSettings) -> Iterator[list[int]]:
    """The indices of the examples, for one epoch after another."""
    sizes = [_size(example) for example in examples]
    epoch = 0
    while True:
        rng = random.Random(f"{settings.seed}:{epoch}")  # noqa: S311
        order = list(range(len(examples)))
        rng.shuffle(order)
        pool = settings.batch * POOL_BATCHES
        batches = []
        for start in range(0, len(order), pool):
            pooled = sorted(order[start : start + pool], key=lambda index: sizes[index])
            batches += [pooled[i : i + settings.batch] for i in range(0, len(pooled), settings.batch)]
        rng.shuffle(batches)
        # A short batch in the middle would shift those behind it.
        batches.sort(key=lambda batch: len(batch) < settings.batch)
        yield [index for batch in batches for index in batch]
        epoch += 1


def _size(example: Example) -> int:
    """About how long an example's row is, in characters."""
    texts = (to_text(example.state), to_text(example.question.instructions), *option_texts(example.question))
    return sum(map(len, texts))


def _segments(row: Row, special: SpecialTokens) -> list[int]:
    """Each token's segment: what stands between two of the row's separators and markers."""
    markers, segment, found = set(row.markers), 1, []
    for position, token in enumerate(row.ids):
        is_end = token == special.sep
        # The separator in front of the first option is followed by a marker, which counts.
        segment += (is_end and position + 1 not in markers) or position in markers
        found.append(0 if is_end or token == special.cls else segment)
    return found


def _reversed(example: Example) -> Example:
    return Example(
        example.state, reversed_order(example.question), example.target, example.group, example.where
    )


def _order(question: Question) -> tuple[int, ...]:
    return question.option_order or tuple(range(len(question.descriptions)))
