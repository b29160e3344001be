"""Whether this machine can keep the promise of equal bits, asked of torch itself and not of our code."""

from __future__ import annotations

import pytest
import torch


def operator_keeps_bits() -> bool:
    """Whether a token's result of oneDNN's operator is the same bits in calls of 16, 64 and 256 tokens."""
    random = torch.Generator().manual_seed(1)
    for width, out in ((64, 64), (196, 256), (320, 1)):
        weight, bias = torch.randn(out, width, generator=random), torch.randn(out, generator=random)
        tokens = torch.randn(256, width, generator=random)
        try:
            whole, part, few = (
                torch.ops.mkldnn._linear_pointwise(tokens[:count], weight, bias, "none", [], "")
                for count in (256, 64, 16)
            )
        except (AttributeError, RuntimeError):
            return False
        if not (torch.equal(whole[:64], part) and torch.equal(whole[:16], few)):
            return False
    return True


needs_equal_bits = pytest.mark.skipif(
    not operator_keeps_bits(), reason="oneDNN's operator is not there, or does not keep bits on this machine"
)
