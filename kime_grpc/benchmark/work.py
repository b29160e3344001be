"""How much arithmetic an answer takes: the least that a forward of the model must multiply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that its arithmetic depends on.

    Attributes:
        hidden: the width of its vectors.
        mlp_in: columns of the MLP's first projection: twice its inner width where it is gated.
        mlp_out: rows of its second: the inner width.
        windows: of each encoder layer, how many tokens one looks at on either side; 0 for all.
        head_layers: of the decision head.
    """

    hidden: int
    mlp_in: int
    mlp_out: int
    windows: tuple[int, ...]
    head_layers: int

    def operations(self, rows: Sequence[tuple[int, int]]) -> int:
        """Floating-point operations of the matrix products of rows: a product and a sum count as two.

        Args:
            rows: each row's tokens and markers.
        """
        return sum(self._row(tokens, markers) for tokens, markers in rows)

    def _row(self, tokens: int, markers: int) -> int:
        d = self.hidden
        layer = 2 * tokens * (4 * d * d + d * self.mlp_in + self.mlp_out * d)
        seen = sum(tokens if not window else min(tokens, 2 * window + 1) for window in self.windows)
        encoder = layer * len(self.windows) + 4 * tokens * seen * d
        # A head layer's MLP is four times as wide; the last layer is for the markers and the first token.
        asked = markers + 1
        full = 2 * tokens * 12 * d * d + 4 * tokens * tokens * d
        last = 2 * tokens * 2 * d * d + 2 * asked * 10 * d * d + 4 * asked * tokens * d
        head = (self.head_layers - 1) * full + last if self.head_layers else 0
        return encoder + head + 2 * markers * (d * d + d)
