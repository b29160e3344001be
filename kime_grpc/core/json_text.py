"""JSON as the model reads it: strict parsing, and the one rendering that the reference uses.

`json.loads` lets through what RFC 8259 does not have (NaN, infinities) and silently keeps the last of two
equal keys; a model would then read something other than what was sent. Here each of these is a `Flaw`, and
all of them are found at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, and lists and string-keyed mappings of these."""

MAX_NESTING = 256
MAX_DIGITS = 4300
_TOO_BIG = 10**MAX_DIGITS
# Possessive, and its closing quote optional: a text that never ends is read once, not once a quote.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_SCALARS = (str, bool, int, float, type(None))


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong with a JSON value: a stable `kind`, and a sentence that says what to do."""

    kind: str
    message: str


def to_text(value: JsonValue) -> str:
    """Render a value as the model reads it: text as it is, anything else as one line of JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parse(text: str) -> tuple[JsonValue, list[Flaw]]:
    """Parse one JSON document.

    Returns:
        The value and its flaws; with flaws, the value must not be used.
    """
    flaws: dict[str, Flaw] = {}

    def flaw(kind: str, message: str) -> None:
        flaws.setdefault(message, Flaw(kind, message))

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        known = dict(members)
        if len(known) < len(members):
            seen: set[str] = set()
            for key, _ in members:
                if key in seen:
                    flaw(
                        "duplicate_key", f"the key {_shown(key)} stands twice in one object; keep one of them"
                    )
                seen.add(key)
        return known

    def constant(word: str) -> float:
        flaw("not_finite", f"{word} is not JSON; send null, a number or a text")
        return 0.0

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > MAX_DIGITS:
            flaw("number_too_long", f"an integer has more than {MAX_DIGITS} digits; send it as a text")
            return 0
        return int(digits)

    def real(number: str) -> float:
        parsed = float(number)
        if math.isinf(parsed):
            flaw("not_finite", f"the number {number[:40]} is beyond a double; send it as a text")
        return parsed

    if _nesting(text) > MAX_NESTING:
        return None, [_nested()]
    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_constant=constant, parse_int=integer, parse_float=real
        )
    except json.JSONDecodeError as error:
        return None, [
            Flaw("not_json", f"not a JSON document: {error.msg.removesuffix(' at')} at character {error.pos}")
        ]
    if not _encodable(text) or ("\\u" in text and not _encodable(to_text(value))):
        flaw("surrogate", "a text has half of a surrogate pair, which is no character; remove or complete it")
    return value, list(flaws.values())


def check(value: JsonValue) -> list[Flaw]:
    """Say what keeps a Python value from being JSON that a model can read; nothing for a good one."""
    flaws: dict[str, Flaw] = {}
    for kind, message in _walk(value):
        flaws.setdefault(message, Flaw(kind, message))
    return list(flaws.values())


def _walk(root: JsonValue) -> Iterator[tuple[str, str]]:
    # A stack of its own, since a hostile value nests deeper than Python's.
    stack: list[tuple[JsonValue, int]] = [(root, 0)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, str):
            if not _encodable(value):
                yield (
                    "surrogate",
                    "a text has half of a surrogate pair, which is no character; remove or complete it",
                )
        elif isinstance(value, float):
            if not math.isfinite(value):
                yield "not_finite", f"{value} is not JSON; send null, a number or a text"
        elif isinstance(value, int):
            if not -_TOO_BIG < value < _TOO_BIG:
                yield "number_too_long", f"an integer has more than {MAX_DIGITS} digits; send it as a text"
        elif isinstance(value, (Mapping, list, tuple)):
            if depth >= MAX_NESTING:
                yield _nested().kind, _nested().message
                return
            if isinstance(value, Mapping):
                if not isinstance(value, dict):
                    yield "type", f"a {type(value).__name__} is not JSON; send a dict"
                names: set[str] = set()
                for key, member in value.items():
                    if not isinstance(key, _SCALARS):
                        yield "type", f"a key of type {type(key).__name__} is not JSON; keys are texts"
                    elif (name := _key_name(key)) in names:
                        yield "duplicate_key", _twice(name)
                    else:
                        names.add(name)
                    stack.append((key, depth + 1))
                    stack.append((member, depth + 1))
            else:
                stack.extend((member, depth + 1) for member in value)
        elif value is not None:
            yield (
                "type",
                f"a {type(value).__name__} is not JSON; send a text, number, bool, null, list or dict",
            )


def _key_name(key: Any) -> str:
    """A key as JSON writes it: `1` and `"1"` are one key there."""
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not -_TOO_BIG < key < _TOO_BIG:
        return hex(key)
    return json.dumps(key)


def _twice(key: str) -> str:
    return f"the key {_shown(key)} stands twice in one object; keep one of them"


def _nested() -> Flaw:
    return Flaw("nesting", f"lists and objects are nested more than {MAX_NESTING} deep; flatten them")


def _nesting(text: str) -> int:
    """How deep brackets nest, strings left out; cheap for the many texts with few brackets."""
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return 0
    deepest = depth = 0
    for match in _TOKENS.finditer(text):
        bracket = match.group()
        if bracket in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "]}":
            depth -= 1
    return deepest


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else text[:60] + "...")
