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
from kime_grpc.models.fields import open_fields
from kime_grpc.models.files import ENCODER_FILE, open_files
from kime_grpc.models.model import Model
from kime_grpc.models.modernbert import SLIDING, ModernBertConfig


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
        self._shape = _shape(checkpoint, self.model)

    def operations(self, states: Sequence[str], questions: Mapping[str, Any]) -> int:
        """Floating-point operations that questions about some states take at least."""
        rows = []
        for state in states:
            request = parse_request({"state": state, "questions": questions})
            prepared = prepare(request, self.model, QuestionCache(0), "")
            rows += [(len(row.ids), len(row.markers)) for row in prepared.rows]
        return self._shape.operations(rows)


def _shape(checkpoint: Path, model: Model) -> Shape:
    fields = open_fields(open_files(checkpoint), ENCODER_FILE, [])
    assert fields is not None  # noqa: S101 - the model is open
    if model.family == "bert":
        bert = BertConfig.from_fields(fields)
        windows = (0,) * bert.num_hidden_layers
        return Shape(
            bert.hidden_size,
            bert.intermediate_size,
            bert.intermediate_size,
            windows,
            model.config.head_layers,
        )
    modern = ModernBertConfig.from_fields(fields)
    windows = tuple(modern.window if kind == SLIDING else 0 for kind in modern.layer_types)
    return Shape(
        modern.hidden_size,
        2 * modern.intermediate_size,
        modern.intermediate_size,
        windows,
        model.config.head_layers,
    )
