"""How a bare encoder of sentence embeddings gets from reading texts alone to comparing those of one row.

Every token is pulled to the embedding that the encoder had, before training, of the text that it stands in (a
row's instructions, one of its options with its marker, its state) read alone. So a marker soon stands for its
option, and the head has something to compare; else training stays at chance for long.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn import functional as F

from kime_grpc.training.batches import Batch
from kime_grpc.training.network import Network


class WarmStart:
    """The encoder as it was."""

    def __init__(self, network: Network) -> None:
        """Keep a copy of a network's encoder."""
        self._encoder = copy.deepcopy(network.encoder).eval().requires_grad_(requires_grad=False)

    def loss(self, x: Tensor, batch: Batch) -> Tensor:
        """How far tokens are from the embeddings of their texts: the mean of 1 - cosine, a scalar.

        Args:
            x: the trained encoder's output, `[rows, tokens, d]`.
            batch: the rows.
        """
        target = self._embeddings(batch)
        inside = batch.segments > 0
        return 1 - F.cosine_similarity(x[inside].float(), target[inside], dim=1).mean()

    @torch.no_grad()
    def _embeddings(self, batch: Batch) -> Tensor:
        """For each token the mean of its text, markers aside, read alone: float32 `[rows, tokens, d]`."""
        together = batch.segments[:, :, None] == batch.segments[:, None, :]  # [rows, tokens, tokens]
        x = self._encoder(input_ids=batch.ids, attention_mask=together[:, None]).last_hidden_state.float()
        is_text = (batch.segments > 0).scatter(1, batch.markers, value=False)
        share = (together & is_text[:, None, :]).float()
        means: Tensor = share @ x / share.sum(2, keepdim=True).clamp(min=1)
        return means
