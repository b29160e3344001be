"""What the machine is and can do: its processor, its versions, and how fast it multiplies matrices."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from kime_grpc.engine.devices import processor
from kime_grpc.models.linear import linear

_PACKAGES = ("kime-grpc", "torch", "laya", "transformers", "tokenizers", "onnxruntime", "grpcio")
# [tokens, in, out] of products as encoders have them: attention's and the MLP's of a base and a large model.
_PRODUCTS = ((512, 768, 2304), (512, 1152, 768), (512, 1024, 5248), (512, 2624, 1024))
_SHORTEST_SECONDS = 0.15


def words() -> Iterator[tuple[str, str]]:
    """Name and value of what a reader of numbers wants to know of the machine."""
    yield "processor", processor()[0]
    yield "system", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def peak(threads: int) -> float:
    """The fastest that float32 matrices of encoders' shapes are multiplied here, in operations a second.

    Of the library's own product and of the one that the forward uses, the faster one counts, for each shape;
    the shapes' median is given.

    Args:
        threads: of the CPU.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            return statistics.median(_rate(*shape) for shape in _PRODUCTS)
    finally:
        torch.set_num_threads(before)


def _rate(tokens: int, width: int, out: int) -> float:
    x = torch.randn(tokens, width)
    weight = torch.randn(out, width)
    ways: tuple[Callable[[], torch.Tensor], ...] = (
        lambda: torch.nn.functional.linear(x, weight),
        lambda: linear(x, weight),
    )
    best = 0.0
    for way in ways:
        way()
        runs, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < _SHORTEST_SECONDS:
            way()
            runs += 1
        best = max(best, runs * 2 * tokens * width * out / took)
    return best
