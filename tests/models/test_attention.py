"""Attention within rows: full, sliding and parallel, against the formula on the whole matrix."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kime_grpc.core.layout import Row
from kime_grpc.models.attention import BLOCK, Span, attend, full_spans, sliding_spans
from kime_grpc.models.packing import pack

HEADS, HEAD_DIM = 2, 16
CPU = torch.device("cpu")


def qkv(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(tokens)
    q, k, v = torch.randn(3, tokens, HEADS, HEAD_DIM, generator=random)
    return q, k, v


def formula(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """`seen` is `[queries, keys]`."""
    scores = torch.einsum("qhd,khd->hqk", q, k) / HEAD_DIM**0.5
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v).flatten(1)


def row(tokens: int) -> Row:
    return Row(tuple(range(tokens)))


def parallel_row(length: int) -> Row:
    """Two options of 3 tokens at the positions 2 to 4, between shared tokens."""
    options = (0, 0, 1, 1, 1, 2, 2, 2, *(0 for _ in range(length - 8)))
    positions = (0, 1, 2, 3, 4, 2, 3, 4, *range(5, length - 3))
    return Row(tuple(range(length)), position_ids=positions, option_ids=options)


def test_tokens_see_their_own_row_only() -> None:
    batch = pack([row(3), row(1), row(9)], CPU)
    q, k, v = qkv(13)
    member = torch.tensor([0] * 3 + [1] + [2] * 9)
    expected = formula(q, k, v, member[:, None] == member)
    torch.testing.assert_close(attend(q, k, v, full_spans(batch, q.dtype)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("window", [0, 1, 16, 64])
@pytest.mark.parametrize("length", [1, 2, 17, 18, 63, 64, 65, 96, 97, 130, 192, 193, 400])
def test_a_sliding_token_sees_its_window_only(length: int, window: int) -> None:
    batch = pack([row(length)], CPU)
    q, k, v = qkv(length)
    at = torch.arange(length)
    expected = formula(q, k, v, (at[:, None] - at).abs() <= window)
    spans = sliding_spans(batch, window, q.dtype)
    torch.testing.assert_close(attend(q, k, v, spans), expected, rtol=0, atol=1e-5)


def test_what_lies_outside_a_window_is_never_read() -> None:
    length, window = 300, 16
    batch = pack([row(length)], CPU)
    q, k, v = qkv(length)
    spans = sliding_spans(batch, window, q.dtype)
    before = attend(q, k, v, spans)
    k[-BLOCK:] = v[-BLOCK:] = 1e6
    after = attend(q, k, v, spans)
    assert torch.equal(before[: length - 2 * BLOCK - window], after[: length - 2 * BLOCK - window])


@pytest.mark.parametrize("length", [8, 30, 700])
@pytest.mark.parametrize("window", [None, 2, 16])
def test_an_option_sees_no_other_in_the_parallel_layout(window: int | None, length: int) -> None:
    laid_out = parallel_row(length)
    batch = pack([row(5), laid_out], CPU)
    q, k, v = qkv(5 + length)
    option, position = torch.tensor(laid_out.option_ids), torch.tensor(laid_out.position_ids)
    seen = (option[:, None] == option) | (option[:, None] == 0) | (option == 0)
    if window is not None:
        seen &= (position[:, None] - position).abs() <= window
    spans = full_spans(batch, q.dtype) if window is None else sliding_spans(batch, window, q.dtype)
    expected = formula(q[5:], k[5:], v[5:], seen)
    torch.testing.assert_close(attend(q, k, v, spans)[5:], expected, rtol=0, atol=1e-5)


def test_few_queries_may_read_a_whole_row() -> None:
    q, k, v = qkv(12)
    few = q[[0, 4, 7]]
    out = attend(few, k, v, [Span((0, 2), (0, 6)), Span((2, 3), (6, 12))])
    member = torch.tensor([0] * 6 + [1] * 6)
    expected = formula(few, k, v, torch.tensor([0, 0, 1])[:, None] == member)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 64), (3, 10), (5, 12), (2, 100), (1, 30)])
def test_a_rows_bits_do_not_depend_on_where_it_stands(heads: int, head_dim: int) -> None:
    for length in (2, 3, 7, 33, 100, 257):
        own = torch.randn(3, length, heads, head_dim)
        alone = attend(*own, [Span((0, length), (0, length))])
        for start in (1, 3, 8):
            among = torch.cat((torch.randn(3, start, heads, head_dim), own), dim=1)
            bounds = (start, start + length)
            spans = [Span((0, start), (0, start)), Span(bounds, bounds)]
            assert torch.equal(attend(*among, spans)[start:], alone)
