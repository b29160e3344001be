"""Rotary position embedding: a token's queries and keys are turned by angles that grow with its position."""

from __future__ import annotations

import torch
from torch import Tensor

# Positions are computed this many at a time: their numbers must not depend on how far the table reaches.
POSITIONS = 1024


class RotaryTable:
    """Cosines and sines of one rope_theta, computed as far as they were needed."""

    def __init__(self, rope_theta: float, head_dim: int, device: torch.device) -> None:
        """Make an empty table; `head_dim` is even."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self._inv_freq = (1.0 / rope_theta**exponents).to(device)  # [head_dim / 2]
        self._cos = self._sin = torch.empty(0, head_dim // 2, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._cos.nbytes + self._sin.nbytes

    def angles(self, position_ids: Tensor, positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines for tokens, float32 `[tokens, 1, head_dim / 2]` each.

        Args:
            position_ids: each token's position, `[tokens]`.
            positions: one more than the highest of them.
        """
        while len(self._cos) < positions:
            start = len(self._cos)
            block = torch.arange(start, start + POSITIONS, dtype=torch.float32, device=self._inv_freq.device)
            angles = block[:, None] * self._inv_freq  # [POSITIONS, head_dim / 2]
            self._cos = torch.cat((self._cos, angles.cos()))
            self._sin = torch.cat((self._sin, angles.sin()))
        return self._cos[position_ids][:, None], self._sin[position_ids][:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn `[tokens, heads, head_dim]` by each token's angles; computed in float32, whatever the dtype."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)
