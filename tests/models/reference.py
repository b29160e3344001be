"""The `laya` package on the same checkpoint and the same rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from laya.agent import Agent
from laya.common import collate_items
from numpy.typing import NDArray

from kime_grpc.core.layout import Row


class Reference:
    """laya's model, fed with our rows."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it names the temperatures that it replaces
            self.agent: Any = Agent(str(directory), device="cpu")

    def decide(self, rows: Sequence[Row]) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Logits and act probabilities of each row."""
        items = [{"ids": list(r.ids), "markers": list(r.markers), "qtype": r.type_index} for r in rows]
        for item, row in zip(items, rows, strict=True):
            if row.option_ids is not None:
                item["layout"] = {"position_ids": row.position_ids, "option_ids": row.option_ids}
        batch = collate_items([items], self.agent.tok.pad_token_id)
        with torch.inference_mode():
            logits, act = self.agent._forward(batch)
        return [(logits[i, : len(row.markers)], act[i]) for i, row in enumerate(rows)]

    def embed(self, row: Row) -> NDArray[np.float32]:
        """The mean of the encoder's vectors."""
        ids = torch.tensor([row.ids])
        with torch.inference_mode():
            hidden = self.agent.model.encoder(
                input_ids=ids, attention_mask=torch.ones_like(ids)
            ).last_hidden_state
        mean: NDArray[np.float32] = hidden[0].mean(0).numpy()
        return mean
