"""Tensors of a safetensors file that is in memory or mapped, without a copy.

The format (https://huggingface.co/docs/safetensors): 8 bytes, the length of the header, little end first; the
header, JSON, with each tensor's dtype, shape and place in what follows it. The library itself only maps whole
files, and a `.kime` file holds one among others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000  # as the library has it
_ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """What the header says of a tensor.

    Attributes:
        dtype: such as `F32`.
        shape: its size along each dimension.
        start: its first byte in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int


class MappedTensors:
    """The tensors by name.

    Attributes:
        headers: what is there.
    """

    def __init__(self, content: memoryview) -> None:
        """Read the header.

        Args:
            content: the file's bytes, which tensors keep alive; writable, or torch warns.

        Raises:
            ValueError: it is no such file, or cut off.
        """
        self._content = content
        length = int.from_bytes(content[:_LENGTH_BYTES], "little")
        data = _LENGTH_BYTES + length
        if len(content) < _LENGTH_BYTES or length > _LONGEST_HEADER or data > len(content):
            raise ValueError("it is cut off, or no safetensors file")
        try:
            described = json.loads(bytes(content[_LENGTH_BYTES:data]))
            described.pop("__metadata__", None)
            self.headers: Mapping[str, TensorHeader] = {
                name: _header(name, one, data, len(content)) for name, one in described.items()
            }
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"its header is not as it should be: {error!r}") from error

    def tensor(self, name: str, dtype: torch.dtype) -> Tensor:
        """A tensor, as a view of the file.

        Args:
            name: which.
            dtype: torch's for what the header says.
        """
        header = self.headers[name]
        count = math.prod(header.shape)
        if not count:
            return torch.empty(header.shape, dtype=dtype)
        content, start = self._content, header.start
        if start % dtype.itemsize:  # a view must lie at a multiple of its items' size
            content, start = memoryview(bytearray(content[start : start + count * dtype.itemsize])), 0
        return torch.frombuffer(content, dtype=dtype, count=count, offset=start).reshape(header.shape)


def _header(name: str, described: Mapping[str, Any], data: int, end: int) -> TensorHeader:
    dtype, shape = described["dtype"], tuple(described["shape"])
    first, last = described["data_offsets"]
    if not all(isinstance(size, int) and size >= 0 for size in (*shape, first, last)):
        raise ValueError(f"{name} has a shape or a place that is no list of sizes")
    if data + last > end:
        raise ValueError(f"it is cut off within {name}")
    size = last - first
    if dtype in _ITEM_BYTES and size != math.prod(shape) * _ITEM_BYTES[dtype]:
        raise ValueError(f"{name} takes {size:,} bytes, which do not make {list(shape)} of {dtype}")
    return TensorHeader(dtype, shape, data + first)
