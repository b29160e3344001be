"""The linear map: `torch.nn.functional.linear`'s numbers, and the same bits in any company."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

from kime_grpc.models import linear as module
from kime_grpc.models.linear import CHUNK, LinearReport, linear, self_test
from tests.models.machine import needs_equal_bits


@pytest.fixture
def fresh_self_test() -> Iterator[None]:
    """Lets the self test run again, and forgets what it found under the test's conditions."""
    self_test.cache_clear()
    yield
    self_test.cache_clear()


def weights(width: int, out: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(width)
    return torch.randn(out, width, generator=random) / width**0.5, torch.randn(out, generator=random)


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 100, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_it_gives_the_numbers_of_torch_for_any_count_of_tokens(tokens: int) -> None:
    weight, bias = weights(96, 33)
    x = torch.randn(tokens, 96)
    torch.testing.assert_close(linear(x, weight, bias), functional.linear(x, weight, bias), rtol=0, atol=1e-5)
    torch.testing.assert_close(linear(x, weight), functional.linear(x, weight), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("gelu", functional.gelu),
        ("gelu_tanh", lambda y: functional.gelu(y, approximate="tanh")),
        ("relu", functional.relu),
    ],
)
def test_activations_are_those_of_torch(activation: Any, function: Any) -> None:
    weight, bias = weights(64, 48)
    x = torch.randn(20, 64) * 3
    expected = function(functional.linear(x, weight, bias))
    torch.testing.assert_close(linear(x, weight, bias, activation), expected, rtol=0, atol=1e-5)


def test_a_row_of_another_dtype_is_computed_too() -> None:
    weight, bias = (t.bfloat16() for t in weights(64, 48))
    x = torch.randn(5, 64).bfloat16()
    torch.testing.assert_close(
        linear(x, weight, bias, "relu"), functional.relu(functional.linear(x, weight, bias))
    )


@needs_equal_bits
@pytest.mark.parametrize("out", [1, 2, 50, 256])
@pytest.mark.parametrize("width", [7, 64, 196, 388])
def test_a_tokens_bits_do_not_depend_on_its_company(width: int, out: int) -> None:
    weight, bias = weights(width, out)
    token = torch.randn(1, width)
    alone = linear(token, weight, bias, "gelu")
    for tokens, at in ((2, 0), (2, 1), (9, 5), (31, 30), (200, 77), (700, 600)):
        x = torch.randn(tokens, width)
        x[at] = token[0]
        assert torch.equal(linear(x, weight, bias, "gelu")[at : at + 1], alone)


def test_the_self_test_says_what_is_used(fresh_self_test: None) -> None:
    report = self_test()
    holds = report.onednn_available and report.equal_numbers and report.equal_bits
    assert report.used == ("onednn" if holds else "torch")
    assert report.ratio > 0 or not report.onednn_available


@needs_equal_bits
def test_the_self_test_finds_the_operator_sound_where_it_is(fresh_self_test: None) -> None:
    report = self_test()
    assert (report.equal_numbers, report.equal_bits, report.used) == (True, True, "onednn")


def test_the_self_test_runs_once_a_process() -> None:
    assert self_test() is self_test()


def test_torch_takes_over_where_the_operator_is_missing(
    fresh_self_test: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*args: Any) -> Any:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    monkeypatch.setattr(module, "_onednn_linear", missing)
    assert self_test() == LinearReport(
        onednn_available=False, equal_numbers=False, equal_bits=False, ratio=0.0, used="torch"
    )
    weight, bias = weights(64, 48)
    x = torch.randn(3, 64)
    assert torch.equal(linear(x, weight, bias), functional.linear(x, weight, bias))


@pytest.mark.parametrize(
    ("broken", "equal_numbers", "equal_bits"),
    [
        (lambda _, y: y + 1, False, True),
        (lambda x, y: y + 1e-6 * len(x), True, False),
    ],
    ids=["wrong numbers", "bits that depend on the company"],
)
def test_torch_takes_over_where_the_operator_does_not_hold(
    broken: Any, equal_numbers: bool, equal_bits: bool, fresh_self_test: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = module._onednn_linear
    monkeypatch.setattr(module, "_onednn_linear", lambda x, *rest: broken(x, sound(x, *rest)))
    report = self_test()
    assert (report.equal_numbers, report.equal_bits) == (equal_numbers, equal_bits)
    assert report.used == "torch"
