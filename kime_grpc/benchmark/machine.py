"""What the machine is and can do: its processor, its versions, and how fast it multiplies matrices."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from kime_grpc.models.linear import linear

_PACKAGES = ("kime-grpc", "torch", "laya", "transformers", "tokenizers", "onnxruntime", "grpcio")
_CPU_INFO = Path("/proc/cpuinfo")
# [tokens, in, out] of products as encoders have them: attention's and the MLP's of a base and a large model.
_PRODUCTS = ((512, 768, 2304), (512, 1152, 768), (512, 1024, 5248), (512, 2624, 1024))
_SHORTEST_SECONDS = 0.15


def words() -> Iterator[tuple[str, str]]:
    """Name and value of what a reader of numbers wants to know of the machine."""
    yield "processor", processor()
    yield "system", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def processor() -> str:
    """The processor's name, where the system says it."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def peak(dtype: torch.dtype, threads: int) -> float:
    """The fastest that matrices of encoders' shapes are multiplied here, in operations a second.

    Of the library's own product and of the one that the forward uses, the faster one counts, for each shape;
    the shapes' median is given.

    Args:
        dtype: float32 or bfloat16.
        threads: of the CPU.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            return statistics.median(_rate(*shape, dtype) for shape in _PRODUCTS)
    finally:
        torch.set_num_threads(before)


def _rate(tokens: int, width: int, out: int, dtype: torch.dtype) -> float:
    x = torch.randn(tokens, width).to(dtype)
    weight = torch.randn(out, width).to(dtype)
    ways: list[Callable[[], torch.Tensor]] = [lambda: torch.nn.functional.linear(x, weight)]
    if dtype is torch.float32:
        ways.append(lambda: linear(x, weight))
    best = 0.0
    for way in ways:
        way()
        runs, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < _SHORTEST_SECONDS:
            way()
            runs += 1
        best = max(best, runs * 2 * tokens * width * out / took)
    return best
