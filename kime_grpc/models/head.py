"""The decision head: from a row's token vectors to a logit for each option and the act probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kime_grpc.core.layout import Row
from kime_grpc.models.attention import Span, attend
from kime_grpc.models.checkpoint import Tensors
from kime_grpc.models.layers import LayerNorm, Linear

QUESTION_TYPES = 3
ACT_HIDDEN = 256
ACT_FEATURES = 4
NORM_EPS = 1e-5


def attention_heads(hidden_size: int) -> int:
    """How many attention heads the head's layers have."""
    return max(1, hidden_size // 64)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the head says of one row.

    Attributes:
        logits: float32 `[options]`, in slot order, before any temperature.
        act: float32 `[act outputs]`, probabilities.
    """

    logits: NDArray[np.float32]
    act: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One pre-norm transformer layer's weights."""

    norm1: LayerNorm
    q: Linear
    kv: Linear
    out_proj: Linear
    norm2: LayerNorm
    linear1: Linear
    linear2: Linear

    @classmethod
    def take(cls, tensors: Tensors, name: str, d: int) -> _Layer:
        in_proj = Linear(
            tensors.take(f"{name}.self_attn.in_proj_weight", 3 * d, d),
            tensors.take(f"{name}.self_attn.in_proj_bias", 3 * d),
        )
        return cls(
            norm1=LayerNorm.take(tensors, f"{name}.norm1", d, NORM_EPS),
            q=in_proj.rows(0, d),
            kv=in_proj.rows(d, 3 * d),
            out_proj=Linear.take(tensors, f"{name}.self_attn.out_proj", d, d),
            norm2=LayerNorm.take(tensors, f"{name}.norm2", d, NORM_EPS),
            linear1=Linear.take(tensors, f"{name}.linear1", 4 * d, d),
            linear2=Linear.take(tensors, f"{name}.linear2", d, 4 * d),
        )


class DecisionHead:
    """Layers over the whole row, a scorer for the markers, and an act head for the [CLS]."""

    def __init__(self, layers: int, hidden_size: int, act_outputs: int, tensors: Tensors) -> None:
        """Take the head's tensors."""
        d = hidden_size
        self._heads = attention_heads(d)
        self._type_emb = tensors.take("type_emb.weight", QUESTION_TYPES, d)
        self._layers = [_Layer.take(tensors, f"head.layers.{i}", d) for i in range(layers)]
        self._scorer_norm = LayerNorm.take(tensors, "scorer.0", d, NORM_EPS)
        self._scorer_hidden = Linear.take(tensors, "scorer.1", d, d)
        self._scorer_out = Linear.take(tensors, "scorer.3", 1, d)
        self._act_hidden = Linear.take(tensors, "act_head.0", ACT_HIDDEN, d + ACT_FEATURES)
        self._act_out = Linear.take(tensors, "act_head.2", act_outputs, ACT_HIDDEN)
        # Temperatures are read from the configuration; the tensor is only part of the format.
        tensors.require("temperature", QUESTION_TYPES)

    def __call__(self, x: Tensor, rows: Sequence[Row]) -> list[Decision]:
        """Decide.

        Args:
            x: the encoder's vectors of the rows' tokens, one row behind the other, `[tokens, d]`.
            rows: rows with at least one marker each.
        """
        lengths = [len(row.ids) for row in rows]
        types = torch.tensor([row.type_index for row in rows], device=x.device)
        repeats = torch.tensor(lengths, device=x.device)
        x = x + self._type_emb[types].repeat_interleave(repeats, dim=0)  # [tokens, d]

        # What is read of a row in the end: its [CLS], and its markers.
        bounds = _bounds(lengths)
        read_bounds = _bounds([1 + len(row.markers) for row in rows])
        read = torch.tensor(
            [start + at for (start, _), row in zip(bounds, rows, strict=True) for at in (0, *row.markers)],
            device=x.device,
        )
        whole = [Span(row, row) for row in bounds]
        for layer in self._layers[:-1]:
            x = self._layer(layer, x, None, whole)
        if self._layers:
            partial = [Span(queries, keys) for queries, keys in zip(read_bounds, bounds, strict=True)]
            x = self._layer(self._layers[-1], x, read, partial)  # [read, d]
        else:
            x = x[read]

        is_cls = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        is_cls[[start for start, _ in read_bounds]] = True
        scores = self._scorer_out(self._scorer_hidden(self._scorer_norm(x[~is_cls]), "gelu"))  # [markers, 1]
        logits = _to_numpy(scores[:, 0])
        by_row = [logits[start:end].copy() for start, end in _bounds([len(row.markers) for row in rows])]

        with np.errstate(invalid="ignore"):  # logits that are not finite are the caller's to judge
            features = torch.from_numpy(np.stack([_features(row) for row in by_row])).to(x.device, x.dtype)
            acts = self._act_out(self._act_hidden(torch.cat((x[is_cls], features), dim=1), "gelu"))
            return [Decision(row, _softmax(act)) for row, act in zip(by_row, _to_numpy(acts), strict=True)]

    def _layer(self, layer: _Layer, x: Tensor, read: Tensor | None, spans: list[Span]) -> Tensor:
        """One layer over all tokens, or only for those in `read`."""
        h = layer.norm1(x)
        k, v = layer.kv(h).view(len(h), 2, self._heads, -1).unbind(1)  # [tokens, heads, head_dim]
        if read is not None:
            x, h = x[read], h[read]
        q = layer.q(h).view(len(h), self._heads, -1)
        x = x + layer.out_proj(attend(q, k, v, spans))
        return x + layer.linear2(layer.linear1(layer.norm2(x), "relu"))


def _bounds(lengths: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(lengths, initial=0)))


def _to_numpy(x: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = x.float().cpu().numpy()
    return array


def _features(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """How sure one row's logits are: top, margin, entropy and count of its options, float32 `[4]`."""
    k = len(logits)
    p = _softmax(logits)
    top = np.sort(np.append(p, np.float32(0)))[::-1]  # a single option's rival has probability 0
    entropy = -(p * np.log(np.maximum(p, np.float32(1e-9)))).sum() / np.log(np.float32(max(2, k)))
    count = np.float32(max(2, k)) / np.float32(255)
    return np.array([top[0], top[0] - top[1], entropy, count], np.float32)


def _softmax(x: NDArray[np.float32]) -> NDArray[np.float32]:
    e = np.exp(x - x.max())
    softened: NDArray[np.float32] = e / e.sum()
    return softened
