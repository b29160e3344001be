"""How much arithmetic an answer takes: the least that a forward of the model must multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kime_grpc.core.laya_form import parse_request
from kime_grpc.engine.preparing import prepare
from kime_grpc.engine.question_cache import QuestionCache
from kime_grpc.models.bert import BertConfig
from kime_grpc.models.model import Model
from kime_grpc.models.modernbert import SLIDING


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


class Work:
    """Counts the arithmetic of requests to one model."""

    def __init__(self, checkpoint: Path) -> None:
        """Read a checkpoint.

        Raises:
            ModelError, TokenizerError: it is broken.
        """
        self.model = Model.open(checkpoint, torch.device("cpu"))
        self._shape = _shape(self.model)

    def operations(self, states: Sequence[str], questions: Mapping[str, Any]) -> int:
        """Floating-point operations that questions about some states take at least."""
        rows = []
        for state in states:
            request = parse_request({"state": state, "questions": questions})
            prepared = prepare(request, self.model, QuestionCache(0), "")
            rows += [(len(row.ids), len(row.markers)) for row in prepared.rows]
        return self._shape.operations(rows)


def _shape(model: Model) -> Shape:
    encoder = model.encoder_config
    if isinstance(encoder, BertConfig):
        gates, windows = 1, (0,) * encoder.num_hidden_layers
    else:
        gates, windows = 2, tuple(encoder.window if kind == SLIDING else 0 for kind in encoder.layer_types)
    inner = encoder.intermediate_size
    return Shape(encoder.hidden_size, gates * inner, inner, windows, model.config.head_layers)
