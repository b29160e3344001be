"""A checkpoint's own configuration, and its tensors, mapped from the file and checked one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kime_grpc.models.fields import Fields, refuse
from kime_grpc.models.files import WEIGHTS_FILE, CheckpointFiles
from kime_grpc.models.mapped_tensors import MappedTensors

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """What `rl_agent_config.json` says.

    Attributes:
        head_layers: transformer layers between the encoder and the scorer.
        max_len: a row's budget in tokens, where a request names none.
        head_max_len: the budget of a row's head in tokens, where a request names none.
        act_outputs: outputs of the act head: one for answering, one for each act that the checkpoint knows.
        parallel: whether options stand side by side instead of one after the other.
        temperature: one value a question type, as found.
        temperature_by_options: a value a bucket such as `choice:3-5`, as found.
    """

    head_layers: int
    max_len: int
    head_max_len: int
    act_outputs: int
    parallel: bool
    temperature: list[Any]
    temperature_by_options: dict[str, Any]

    @classmethod
    def from_fields(cls, fields: Fields) -> CheckpointConfig:
        """Read the configuration; problems are noted in `fields`."""
        fields.require("encoder", "head_layers")
        act_costs = fields.values.get("act_costs", {})
        if not isinstance(act_costs, (dict, list)):
            fields.note("act_costs", f"must be an object, not {act_costs!r}")
            act_costs = {}
        temperature = fields.values.get("temperature", [1.0, 1.0, 1.0])
        if not isinstance(temperature, list) or len(temperature) != 3:
            fields.note("temperature", f"must be a list of 3 numbers, not {temperature!r}")
            temperature = [1.0, 1.0, 1.0]
        by_options = fields.values.get("temperature_by_options", {})
        if not isinstance(by_options, dict):
            fields.note("temperature_by_options", f"must be an object, not {by_options!r}")
            by_options = {}
        layout = fields.one_of("option_layout", "sequential", ("sequential", "parallel"))
        return cls(
            head_layers=fields.integer("head_layers", 0, minimum=0),
            max_len=fields.integer("max_len", 512, minimum=1),
            head_max_len=fields.integer("head_max_len", 192, minimum=1),
            act_outputs=len(act_costs) + 1,
            parallel=layout == "parallel",
            temperature=temperature,
            temperature_by_options=by_options,
        )


class Tensors:
    """The tensors of a checkpoint.

    Ask for every tensor that the model has, then call `finish`: it raises if any was missing, wrongly shaped
    or wrongly typed, or if the file has one that nobody asked for. Until then a bad tensor is an empty one.

    float32 on the CPU stays a view of the mapped file; anything else is converted or moved, which copies.
    """

    def __init__(self, files: CheckpointFiles, device: torch.device, dtype: torch.dtype) -> None:
        """Map the file.

        Args:
            files: the checkpoint's.
            device: where the tensors go.
            dtype: what the forward computes in.

        Raises:
            ModelError: the file is missing or no safetensors file.
        """
        self.weight_bytes = 0
        self._path, self._device, self._dtype = files.path, device, dtype
        self._problems: list[str] = []
        self._asked: set[str] = set()
        try:
            self._file = MappedTensors(files.map(WEIGHTS_FILE))
        except FileNotFoundError:
            refuse(files.path, [f"{WEIGHTS_FILE} is missing"])
        except (ValueError, OSError) as error:
            refuse(files.path, [f"{WEIGHTS_FILE} cannot be read: {error}"])

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of that name, `shape`, in the dtype and on the device of the forward."""
        if not self._is_there(name, shape):
            return torch.empty(0)
        tensor = self._file.tensor(name, _FLOATS[self._file.headers[name].dtype])
        tensor = tensor.to(self._device, self._dtype)
        self.weight_bytes += tensor.nbytes
        return tensor

    def require(self, name: str, *shape: int) -> None:
        """Check a tensor that a checkpoint must have but the forward does not read."""
        self._is_there(name, shape)

    def finish(self) -> None:
        """Raise a `ModelError` that names everything that is wrong, if anything is."""
        extra = sorted(self._file.headers.keys() - self._asked)
        problems = self._problems + [f"{name} is not a tensor of this model" for name in extra]
        if problems:
            refuse(self._path, [f"{WEIGHTS_FILE}: {problem}" for problem in problems])

    def _is_there(self, name: str, shape: tuple[int, ...]) -> bool:
        self._asked.add(name)
        if name not in self._file.headers:
            self._problems.append(f"{name} {list(shape)} is missing")
            return False
        found, kind = self._file.headers[name].shape, self._file.headers[name].dtype
        if found != shape:
            self._problems.append(f"{name} should be {list(shape)} but is {list(found)}")
        if kind not in _FLOATS:
            self._problems.append(f"{name} should be one of {', '.join(_FLOATS)} but is {kind}")
        return found == shape and kind in _FLOATS
