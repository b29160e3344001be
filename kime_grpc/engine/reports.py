"""What `Kime` says beside answers: vectors, times and bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kime_grpc.core.answers import Timing


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
class Memory:
    """Bytes that the model holds, as of the last forward.

    Attributes:
        weights: of the weights.
        plans: of what batches so far made it keep, such as tables and masks.
    """

    weights: int
    plans: int
