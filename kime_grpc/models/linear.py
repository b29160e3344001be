"""The linear map whose result for a token does not depend on which other tokens share the call.

On the CPU torch's own `F.linear` picks another kernel for few rows and for a single output, so a token's last
bits change with its company. oneDNN's do not, from two rows on. Its operator is private to torch, so it is
tried once a process, in the kinds of shapes that matter; `F.linear` takes over where it does not hold.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

Activation: TypeAlias = Literal["gelu", "gelu_tanh", "relu"]

# The operator's words for an activation: attribute, algorithm.
_ONEDNN_WORDS: dict[Activation | None, tuple[str, str]] = {
    None: ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
}
# oneDNN compiles kernels for every token count that it meets, about a millisecond and a megabyte each, and
# keeps them. So it meets few counts: multiples of STEP up to CHUNK, never a lone row.
CHUNK = 256
STEP = 16
MAX_DIFFERENCE = 1e-4

# (in, out, activation) of maps as models have them: wide, narrow, odd, and down to one output.
_CASES: tuple[tuple[int, int, Activation | None], ...] = (
    (384, 384, None),
    (384, 1, None),
    (196, 96, "gelu"),
    (77, 50, "gelu_tanh"),
    (64, 256, "relu"),
)
# (tokens in a call, where the three tokens that are watched stand among them)
_COMPANIES = ((17, 9), (48, 44), (64, 17))


@dataclass(frozen=True, slots=True)
class LinearReport:
    """What the self test found on this machine.

    Attributes:
        onednn_available: torch has oneDNN's operator, and it runs.
        equal_numbers: its results are `F.linear`'s, but for rounding.
        equal_bits: a token's result is the same bits in any company.
        ratio: the time of `F.linear` over oneDNN's; above 1 oneDNN is faster. 0 where it is not available.
        used: which of the two the forward uses.
    """

    onednn_available: bool
    equal_numbers: bool
    equal_bits: bool
    ratio: float
    used: Literal["onednn", "torch"]


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation | None = None
) -> Tensor:
    """`activation(x @ weight.T + bias)`.

    Args:
        x: `[tokens, in]`, at least one token.
        weight: `[out, in]`.
        bias: `[out]`.
        activation: what is applied to the result: `gelu` (with erf), `gelu_tanh` (an approximation), `relu`.

    Returns:
        `[tokens, out]`.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or self_test().used == "torch":
        return _torch_linear(x, weight, bias, activation)
    return _onednn_linear(x, weight, bias, activation)


@functools.cache
def self_test() -> LinearReport:
    """Try oneDNN's operator on this machine, once a process; takes some milliseconds."""
    with torch.inference_mode():
        try:
            _onednn_linear(torch.zeros(2, 8), torch.zeros(4, 8), None, None)
        except (AttributeError, RuntimeError):
            return LinearReport(
                onednn_available=False, equal_numbers=False, equal_bits=False, ratio=0.0, used="torch"
            )
        random = torch.Generator().manual_seed(0)
        equal_numbers = all(_numbers_agree(random, *case) for case in _CASES)
        equal_bits = all(_bits_hold(random, *case) for case in _CASES)
        return LinearReport(
            onednn_available=True,
            equal_numbers=equal_numbers,
            equal_bits=equal_bits,
            ratio=_time_ratio(random),
            used="onednn" if equal_numbers and equal_bits else "torch",
        )


def _onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Tensor:
    tokens = x.shape[0]
    if tokens > CHUNK:
        return torch.cat([_onednn_linear(part, weight, bias, activation) for part in torch.split(x, CHUNK)])
    attribute, algorithm = _ONEDNN_WORDS[activation]
    padded = F.pad(x, (0, 0, 0, -tokens % STEP)) if tokens % STEP else x.contiguous()
    result: Tensor = torch.ops.mkldnn._linear_pointwise(padded, weight, bias, attribute, [], algorithm)  # noqa: SLF001
    return result[:tokens]


def _torch_linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Tensor:
    y = F.linear(x, weight, bias)
    if activation is None:
        return y
    if activation == "relu":
        return F.relu(y)
    return F.gelu(y, approximate="tanh" if activation == "gelu_tanh" else "none")


def _numbers_agree(random: torch.Generator, width: int, out: int, activation: Activation | None) -> bool:
    weight, bias = _weights(random, width, out)
    x = torch.randn(4, width, generator=random)
    ours, theirs = (f(x, weight, bias, activation) for f in (_onednn_linear, _torch_linear))
    return bool((ours - theirs).abs().max() < MAX_DIFFERENCE)


def _bits_hold(random: torch.Generator, width: int, out: int, activation: Activation | None) -> bool:
    weight, bias = _weights(random, width, out)
    tokens = torch.randn(3, width, generator=random)
    alone = _onednn_linear(tokens, weight, bias, activation)
    if not torch.equal(_onednn_linear(tokens[:1], weight, bias, activation), alone[:1]):
        return False
    for company, start in _COMPANIES:
        x = torch.randn(company, width, generator=random)
        x[start : start + 3] = tokens
        if not torch.equal(_onednn_linear(x, weight, bias, activation)[start : start + 3], alone):
            return False
    return True


def _time_ratio(random: torch.Generator) -> float:
    weight, bias = _weights(random, 384, 384)
    x = torch.randn(48, 384, generator=random)
    return _seconds(lambda: _torch_linear(x, weight, bias, None)) / _seconds(
        lambda: _onednn_linear(x, weight, bias, None)
    )


def _weights(random: torch.Generator, width: int, out: int) -> tuple[Tensor, Tensor]:
    return torch.randn(out, width, generator=random) / width**0.5, torch.randn(out, generator=random)


def _seconds(call: Callable[[], Tensor]) -> float:
    """The best of a few runs."""
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best
