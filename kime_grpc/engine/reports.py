"""What `Kime` says beside answers: vectors, times, bytes and counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kime_grpc.core.answers import Timing
from kime_grpc.models.model import RowOutput


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """Where the time of a `decide_batch_timed` call went.

    Attributes:
        tokenize: seconds for rendering, tokenizing and laying out.
        device: seconds of the device for the batches that carried the call.
        batches: how many batches carried it.
        truncated: how many questions did not see their whole state.
        cut_tokens: how many tokens of states they had no room for, in all.
        cached: how many questions the answer cache answered.
    """

    tokenize: float
    device: float
    batches: int
    truncated: int
    cut_tokens: int
    cached: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors for texts.

    Attributes:
        vectors: float32, `[texts, hidden_size]`.
        input_tokens: tokens read, special tokens included.
        timing: where the time went.
    """

    vectors: NDArray[np.float32]
    input_tokens: int
    timing: Timing


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the device said of an item's rows, and where the time went, in seconds."""

    outputs: tuple[RowOutput, ...]
    queue: float = 0.0
    device: float = 0.0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that the model holds, as of the last forward.

    Attributes:
        weights: of the weights.
        plans: of what batches so far made it keep, such as tables and masks.
    """

    weights: int
    plans: int


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The queue and the worker: their state, and counts since the model was opened.

    Attributes:
        waiting_items: items in the queue now.
        waiting_tokens: tokens of their rows.
        running_rows: rows of the batch that runs now.
        batch_budget: the token budget of a batch.
        batches: batches begun.
        batch_rows: their rows.
        batch_tokens: their tokens.
        cancelled: items dropped because their caller was gone.
        late: items dropped because their deadline had passed.
        refused_full: items refused because too much was waiting.
        refused_late: items refused because they could only have been late.
        failed: rows that failed: the device did on them alone, or their numbers were not finite.
        split: batches split because memory ran out.
        restarts: how often the worker died or hung and was replaced.
    """

    waiting_items: int
    waiting_tokens: int
    running_rows: int
    batch_budget: int
    batches: int
    batch_rows: int
    batch_tokens: int
    cancelled: int
    late: int
    refused_full: int
    refused_late: int
    failed: int
    split: int
    restarts: int
