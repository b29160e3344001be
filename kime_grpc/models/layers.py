"""The two layers that every part of the model is made of, as weights that can be called."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kime_grpc.models.checkpoint import Tensors
from kime_grpc.models.linear import Activation, linear


@dataclass(frozen=True, slots=True)
class Linear:
    """`activation(x @ weight.T + bias)`.

    Attributes:
        weight: `[out, in]`.
        bias: `[out]`, or None.
    """

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def take(cls, tensors: Tensors, name: str, out: int, width: int, *, bias: bool = True) -> Linear:
        """Take `name.weight` and, where there is one, `name.bias`."""
        weight = tensors.take(f"{name}.weight", out, width)
        return cls(weight, tensors.take(f"{name}.bias", out) if bias else None)

    @classmethod
    def stack(cls, *parts: Linear) -> Linear:
        """One that gives the outputs of several, one behind the other. Their weights are copied.

        Either all have a bias or none.
        """
        biases = [part.bias for part in parts if part.bias is not None]
        return cls(torch.cat([part.weight for part in parts]), torch.cat(biases) if biases else None)

    def __call__(self, x: Tensor, activation: Activation | None = None) -> Tensor:
        """`[tokens, in]` -> `[tokens, out]`."""
        return linear(x, self.weight, self.bias, activation)

    def rows(self, start: int, end: int) -> Linear:
        """The part that computes the outputs from `start` to `end`; views, not copies."""
        return Linear(self.weight[start:end], None if self.bias is None else self.bias[start:end])


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Each token's vector brought to mean 0 and variance 1, scaled and shifted.

    Attributes:
        weight: `[d]`.
        bias: `[d]`, or None.
        eps: what is added to the variance.
    """

    weight: Tensor
    bias: Tensor | None
    eps: float

    @classmethod
    def take(cls, tensors: Tensors, name: str, d: int, eps: float, *, bias: bool = True) -> LayerNorm:
        """Take `name.weight` and, where there is one, `name.bias`."""
        return cls(tensors.take(f"{name}.weight", d), tensors.take(f"{name}.bias", d) if bias else None, eps)

    def __call__(self, x: Tensor) -> Tensor:
        """`[tokens, d]` -> `[tokens, d]`."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
