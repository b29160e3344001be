"""Temperatures by type and option count: which one divides a question's logits.

Values are confined to [0.5, 5]: a fitted temperature below 0.5 would publish a coin flip as a certainty. A
value that is no number counts as 1. Both are the reference's rules, and what was replaced is named, once, at
load.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kime_grpc.core.request import QuestionType

TEMPERATURE_MIN = 0.5
TEMPERATURE_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The temperatures that a model applies.

    Attributes:
        by_type: one a question type, in the order choice, score, noul.
        by_bucket: one a bucket such as `choice:3-5`; goes before `by_type`.
        replaced: a sentence for every value of the checkpoint that was not taken as it is.
    """

    by_type: tuple[float, float, float]
    by_bucket: Mapping[str, float]
    replaced: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, temperature: Sequence[Any], by_options: Mapping[str, Any]) -> Calibration:
        """Take a checkpoint's `temperature` (three values) and `temperature_by_options`."""
        applied = [clamp_temperature(value) for value in temperature]
        buckets = {bucket: clamp_temperature(value) for bucket, value in by_options.items()}
        named = [
            (f"temperature[{i}]", raw, used)
            for i, (raw, used) in enumerate(zip(temperature, applied, strict=True))
        ]
        named += [(f'temperature_by_options["{b}"]', raw, buckets[b]) for b, raw in by_options.items()]
        replaced = tuple(
            f"{name} is {raw!r}, {used:g} is used" for name, raw, used in named if not _is(raw, used)
        )
        choice, score, noul = applied
        return cls((choice, score, noul), buckets, replaced)

    def temperature(self, question_type: QuestionType, options: int) -> float:
        """The temperature for a question of this type with this many options."""
        return self.by_bucket.get(bucket(question_type, options), self.by_type[question_type])

    @property
    def id(self) -> str:
        """A short name for these temperatures: equal temperatures have equal ids."""
        canonical = json.dumps([list(self.by_type), sorted(self.by_bucket.items())])
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def bucket(question_type: QuestionType, options: int) -> str:
    """The bucket that a question falls into, such as `choice:3-5`."""
    size = "2" if options <= 2 else "3-5" if options <= 5 else "6-10" if options <= 10 else "11+"
    return f"{question_type.word}:{size}"


def clamp_temperature(value: Any) -> float:
    """A usable temperature: the value within [0.5, 5], or 1 for one that is no number (a bool is none)."""
    number = _number(value)
    return 1.0 if number is None else min(TEMPERATURE_MAX, max(TEMPERATURE_MIN, number))


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is(raw: Any, used: float) -> bool:
    return _number(raw) == used
