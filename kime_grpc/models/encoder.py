"""What the model asks of an encoder, whatever its family."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from kime_grpc.models.linear import Activation
from kime_grpc.models.packing import PackedRows

# transformers' names for the activations that are computed here.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


class Encoder(Protocol):
    """Token ids in, a vector for every token out."""

    def __call__(self, batch: PackedRows) -> Tensor:
        """Encode a batch, `[tokens, d]`."""

    def plan_bytes(self) -> int:
        """Bytes that batches so far made it keep."""
