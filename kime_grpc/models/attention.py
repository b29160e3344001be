"""Attention, one row at a time: what a row's tokens see never depends on what else is in the batch.

How a row is computed is chosen by the row alone: by its length and, in the parallel layout, by its options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kime_grpc.models.packing import PackedRows

# Queries that share a block of keys in a sliding layer.
BLOCK = 64
# Kernels may round differently where a row does not start on a boundary of this many bytes.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Span:
    """One row's part of a stream of queries and of a stream of keys.

    Attributes:
        queries: where its queries start and end.
        keys: where its keys and values start and end.
        mask: added to the scores, `[queries, keys]`; None where every token sees every other.
        band: added to the scores of a row that is computed in blocks,
            `[blocks, 1, BLOCK, BLOCK + 2 * window]`.
        window: how far to either side a token sees in such a row.
    """

    queries: tuple[int, int]
    keys: tuple[int, int]
    mask: Tensor | None = None
    band: Tensor | None = None
    window: int = 0


def full_spans(batch: PackedRows, dtype: torch.dtype) -> list[Span]:
    """Spans for layers in which a token sees its whole row; in the parallel layout all but other options."""
    return [
        Span(bounds, bounds, mask=None if row.option_ids is None else _parallel_mask(batch, i, None, dtype))
        for i, (row, bounds) in enumerate(zip(batch.rows, batch.bounds, strict=True))
    ]


def sliding_spans(batch: PackedRows, window: int, dtype: torch.dtype) -> list[Span]:
    """Spans for layers in which a token sees those up to `window` positions to either side."""
    masks: dict[int, tuple[Tensor | None, Tensor | None]] = {}
    spans = []
    for i, (row, bounds) in enumerate(zip(batch.rows, batch.bounds, strict=True)):
        if row.option_ids is not None:
            spans.append(Span(bounds, bounds, mask=_parallel_mask(batch, i, window, dtype)))
            continue
        length = len(row.ids)
        if length not in masks:
            masks[length] = _window_masks(length, window, dtype, batch.ids.device)
        mask, band = masks[length]
        spans.append(Span(bounds, bounds, mask=mask, band=band, window=window))
    return spans


def attend(q: Tensor, k: Tensor, v: Tensor, spans: Sequence[Span]) -> Tensor:
    """`softmax(q @ k.T / sqrt(head_dim) + mask) @ v` within every row.

    Args:
        q: `[queries, heads, head_dim]`.
        k: `[keys, heads, head_dim]`.
        v: `[keys, heads, head_dim]`.
        spans: the rows; together they cover all queries.

    Returns:
        `[queries, heads * head_dim]`.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for span in spans:
        # [heads, tokens of the row, head_dim]
        row_q = _row(q, span.queries)
        row_k, row_v = _row(k, span.keys), _row(v, span.keys)
        if span.band is not None:
            attended = _blocked(row_q, row_k, row_v, span.band, span.window)
        else:
            attended = F.scaled_dot_product_attention(
                row_q[None], row_k[None], row_v[None], attn_mask=span.mask
            )[0]
        out[span.queries[0] : span.queries[1]] = attended.transpose(0, 1)
    return out.flatten(1)


def _row(x: Tensor, bounds: tuple[int, int]) -> Tensor:
    """One row of `[tokens, heads, head_dim]` as `[heads, tokens of the row, head_dim]`."""
    row = x[bounds[0] : bounds[1]].transpose(0, 1)
    if x.shape[-1] * x.element_size() % ALIGNMENT:
        return row.clone(memory_format=torch.contiguous_format)
    return row


def _blocked(q: Tensor, k: Tensor, v: Tensor, band: Tensor, window: int) -> Tensor:
    """Attention within a window, a block of queries at a time: `[heads, length, head_dim]` in and out."""
    length, blocks, span = q.shape[1], band.shape[0], band.shape[-1]
    tail = blocks * BLOCK - length
    q = F.pad(q, (0, 0, 0, tail))
    k, v = (F.pad(x, (0, 0, window, window + tail)) for x in (k, v))
    # Block b holds the queries from b * BLOCK on, and the keys from there less the window.
    q = q.view(len(q), blocks, BLOCK, -1).transpose(0, 1)  # [blocks, heads, BLOCK, head_dim]
    k, v = (
        x.unfold(1, span, BLOCK).permute(1, 0, 3, 2).contiguous() for x in (k, v)
    )  # [blocks, heads, span, head_dim]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=band)
    return out.transpose(0, 1).flatten(1, 2)[:, :length]  # [heads, length, head_dim]


def _window_masks(
    length: int, window: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """`Span.mask` and `Span.band` of a row in a sliding layer: neither, one or the other, by its length."""
    if length <= window + 1:
        return None, None
    if length <= BLOCK + 2 * window:  # one block would read the whole row
        at = torch.arange(length, device=device)
        return _additive((at[:, None] - at).abs() <= window, dtype), None
    blocks = -(-length // BLOCK)
    query = torch.arange(blocks * BLOCK, device=device).view(blocks, BLOCK, 1)
    key = query[:, :1] + torch.arange(-window, BLOCK + window, device=device)
    # A query behind the row's end is thrown away, but must see something: softmax over nothing is NaN.
    there = ((key >= 0) & (key < length)) | (query >= length)
    return None, _additive(there & ((query - key).abs() <= window), dtype)[:, None]


def _parallel_mask(batch: PackedRows, index: int, window: int | None, dtype: torch.dtype) -> Tensor:
    """The mask of a row in the parallel layout, `[length, length]`: no option sees another.

    The window counts positions, which options share, so that no option sees more of the state than another.
    """
    start, end = batch.bounds[index]
    option = torch.tensor(batch.rows[index].option_ids, device=batch.ids.device)
    query, key = option[:, None], option[None, :]
    seen = (query == key) | (query == 0) | (key == 0)
    if window is not None:
        position = batch.position_ids[start:end]
        seen &= (position[:, None] - position[None, :]).abs() <= window
    return _additive(seen, dtype)


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a token is seen, minus infinity where it is not."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
