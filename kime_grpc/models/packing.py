"""Rows of any lengths as one stream of tokens, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import torch
from torch import Tensor

from kime_grpc.core.layout import Row


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The rows of a batch, one behind the other.

    Attributes:
        rows: the rows.
        bounds: where each row starts and ends in the stream.
        ids: token ids, int64 `[tokens]`.
        position_ids: each token's position in its row, int64 `[tokens]`.
        positions: one more than the highest of them.
    """

    rows: tuple[Row, ...]
    bounds: tuple[tuple[int, int], ...]
    ids: Tensor
    position_ids: Tensor
    positions: int


def pack(rows: Sequence[Row], device: torch.device) -> PackedRows:
    """Put rows with at least one token each behind each other."""
    ends = accumulate((len(row.ids) for row in rows), initial=0)
    positions = [range(len(row.ids)) if row.position_ids is None else row.position_ids for row in rows]
    return PackedRows(
        rows=tuple(rows),
        bounds=tuple(pairwise(ends)),
        ids=torch.tensor(list(chain.from_iterable(row.ids for row in rows)), device=device),
        position_ids=torch.tensor(list(chain.from_iterable(positions)), device=device),
        positions=1 + max(map(max, positions)),
    )
