"""Logits to probabilities, in the reference's own float types and order of operations.

The reference computes in numpy: float32 logits stay float32 through the softmax, the expected level is summed
in float64 (an int64 range times float32). Doing the same here is what makes rounded numbers equal to the last
digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Distribution:
    """What one question's logits say.

    Attributes:
        probabilities: one an option, in the options' own order.
        expected: the expected index, sum of i * p_i.
        entropy_confidence: 1 - entropy / log(options), within [0, 1]; 1 for a single option.
        margin_confidence: the top probability less the second; 1 for a single option.
        answer_confidence: the top probability, within [0, 1].
    """

    probabilities: tuple[float, ...]
    expected: float
    entropy_confidence: float
    margin_confidence: float
    answer_confidence: float

    @property
    def top(self) -> int:
        """The index of the most probable option; the first of equals."""
        return self.probabilities.index(max(self.probabilities))


def distribution(
    logits: NDArray[np.float32], temperature: float, option_order: Sequence[int] | None = None
) -> Distribution:
    """Softmax of `logits / temperature`.

    Args:
        logits: float32, `[options]`, in slot order.
        temperature: what divides them.
        option_order: the option that each slot showed, or None for the options' own order.
    """
    z = logits / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    if option_order is not None:
        in_own_order = np.empty_like(p)
        in_own_order[np.asarray(option_order, dtype=np.int64)] = p
        p = in_own_order
    k = len(p)
    if k > 1:
        second, first = np.sort(p)[-2:]
        entropy = -float((p * np.log(np.clip(p, 1e-12, 1.0))).sum())
        concentration = _unit(1.0 - entropy / math.log(k))
        margin = float(first) - float(second)
    else:
        concentration = margin = 1.0
    return Distribution(
        probabilities=tuple(float(value) for value in p),
        expected=float((np.arange(k) * p).sum()),
        entropy_confidence=concentration,
        margin_confidence=margin,
        answer_confidence=_unit(float(p.max())),
    )


def _unit(value: float) -> float:
    return 0.0 if value < 0.0 else min(value, 1.0)
