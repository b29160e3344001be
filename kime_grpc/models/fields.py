"""Read a checkpoint's JSON files key by key, and collect all that is wrong before anything is raised."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kime_grpc.core.errors import ModelError
from kime_grpc.models.files import CheckpointFiles

MAX_LISTED = 20


class Fields:
    """One JSON object of a checkpoint. A reader that finds no usable value notes why and makes one up."""

    def __init__(self, file: str, values: Mapping[str, Any], problems: list[str]) -> None:
        """Read `values` of `file` (its name inside the checkpoint), noting problems in `problems`."""
        self.file = file
        self.values = values
        self.problems = problems

    def note(self, key: str, sentence: str) -> None:
        """Note a problem with a key, such as `must be a whole number`."""
        self.problems.append(f"{self.file}: {key} {sentence}")

    def require(self, *keys: str) -> None:
        """Note every key of these that is not there."""
        for key in keys:
            if key not in self.values:
                self.note(key, "is missing")

    def integer(self, key: str, default: int, *, minimum: int) -> int:
        """A whole number that is at least `minimum`."""
        value = self.values.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
            return value
        self.note(key, f"must be a whole number of at least {minimum}, not {value!r}")
        return default

    def positive(self, key: str, default: float) -> float:
        """A number above 0."""
        value = self.values.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf"):
            return float(value)
        self.note(key, f"must be a number above 0, not {value!r}")
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if isinstance(value, bool):
            return value
        self.note(key, f"must be true or false, not {value!r}")
        return default

    def one_of(self, key: str, default: str, known: Collection[str]) -> str:
        """One of the known words."""
        value = self.values.get(key, default)
        if isinstance(value, str) and value in known:
            return value
        self.note(key, f"must be one of {', '.join(known)}, not {value!r}")
        return default


def open_fields(files: CheckpointFiles, file: str, problems: list[str]) -> Fields | None:
    """Read `file` of a checkpoint; None, with a problem noted, if it holds no JSON object."""
    try:
        values = json.loads(files.read(file))
    except FileNotFoundError:
        problems.append(f"{file} is missing")
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{file} cannot be read as JSON: {error}")
    else:
        if isinstance(values, dict):
            return Fields(file, values, problems)
        problems.append(f"{file} must hold a JSON object")
    return None


def refuse(checkpoint: Path, problems: Sequence[str]) -> NoReturn:
    """Raise a `ModelError` with all problems of a checkpoint; a long list is cut, with a count."""
    listed = list(problems[:MAX_LISTED])
    if len(problems) > MAX_LISTED:
        listed.append(f"and {len(problems) - MAX_LISTED} more")
    raise ModelError(f"{checkpoint} is no checkpoint that can be opened: " + "; ".join(listed))
