"""JSON as the model reads it: strict parsing, and the one rendering that the reference uses.

`json.loads` lets through what RFC 8259 does not have (NaN, infinities) and silently keeps the last of two
equal keys; a model would then read something other than what was sent. Here each of these is a `Flaw`, and
all of them are found at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kime_grpc.core.long_json import LongDocument, rendered, structure

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, and lists and string-keyed mappings of these. A `LongList` is a list, too."""

MAX_NESTING = 256
MAX_DIGITS = 4300
_TOO_BIG = 10**MAX_DIGITS
_SCALARS = (str, bool, int, float, type(None))
_LONG_INTEGER = ("number_too_long", f"an integer has more than {MAX_DIGITS} digits; send it as a text")
_HALF_A_PAIR = (
    "surrogate",
    "a text has half of a surrogate pair, which is no character; remove or complete it",
)
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong with a JSON value: a stable `kind`, and a sentence that says what to do."""

    kind: str
    message: str


class LongList(str):
    """The rendering of a long list, where only that it was a list is still worth knowing."""

    __slots__ = ()


def to_text(value: JsonValue) -> str:
    """Render a value as the model reads it: text as it is, anything else as one line of JSON."""
    return value if isinstance(value, str) else rendered(value, _encode)


def parse(text: str) -> tuple[JsonValue, list[Flaw]]:
    """Parse one JSON document.

    Returns:
        The value and its flaws; with flaws, the value must not be used.
    """
    flaws = _Flaws()
    if structure(text, MAX_NESTING).nesting > MAX_NESTING:
        return None, [_nested()]
    try:
        value = flaws.decoder().decode(text)
    except json.JSONDecodeError as error:
        return None, [_broken(error)]
    if not _encodable(text) or ("\\u" in text and not _encodable(to_text(value))):
        flaws.add(*_HALF_A_PAIR)
    return value, flaws.all()


def read(text: str) -> tuple[JsonValue, list[Flaw]]:
    """Parse one JSON document that only the model is to read, so that other threads get their turns.

    Returns:
        What `parse` gives, but a long object comes as its rendering, and a long list as a `LongList`.
    """
    brackets = structure(text, MAX_NESTING)
    if brackets.nesting > MAX_NESTING:
        return None, [_nested()]
    if not brackets.is_long(text):
        return parse(text)
    flaws = _Flaws()
    try:
        rendering = LongDocument(text, brackets.long, flaws.decoder(), _encode, flaws.add_twice).render()
    except json.JSONDecodeError as error:
        return None, [_broken(error)]
    if not _encodable(text) or not _encodable(rendering):
        flaws.add(*_HALF_A_PAIR)
    return LongList(rendering) if rendering.startswith("[") else rendering, flaws.all()


class _Flaws:
    """Collects what is wrong with a document, each thing once, while a decoder of its own reads it."""

    def __init__(self) -> None:
        self._found: dict[str, Flaw] = {}

    def add(self, kind: str, message: str) -> None:
        self._found.setdefault(message, Flaw(kind, message))

    def add_twice(self, key: str) -> None:
        self.add("duplicate_key", _twice(key))

    def all(self) -> list[Flaw]:
        return list(self._found.values())

    def decoder(self) -> json.JSONDecoder:
        return json.JSONDecoder(
            object_pairs_hook=self._pairs,
            parse_constant=self._constant,
            parse_int=self._integer,
            parse_float=self._real,
        )

    def _pairs(self, members: list[tuple[str, Any]]) -> dict[str, Any]:
        known = dict(members)
        if len(known) < len(members):
            seen: set[str] = set()
            for key, _ in members:
                if key in seen:
                    self.add_twice(key)
                seen.add(key)
        return known

    def _constant(self, word: str) -> float:
        self.add("not_finite", f"{word} is not JSON; send null, a number or a text")
        return 0.0

    def _integer(self, digits: str) -> int:
        if len(digits.lstrip("-")) > MAX_DIGITS:
            self.add(*_LONG_INTEGER)
            return 0
        return int(digits)

    def _real(self, number: str) -> float:
        parsed = float(number)
        if math.isinf(parsed):
            self.add("not_finite", f"the number {number[:40]} is beyond a double; send it as a text")
        return parsed


def check(value: JsonValue) -> list[Flaw]:
    """Say what keeps a Python value from being JSON that a model can read; nothing for a good one."""
    flaws: dict[str, Flaw] = {}
    for kind, message in _walk(value):
        flaws.setdefault(message, Flaw(kind, message))
    return list(flaws.values())


def _walk(root: JsonValue) -> Iterator[tuple[str, str]]:
    # A stack of its own, since a hostile value nests deeper than Python's.
    stack: list[tuple[Iterable[JsonValue], int]] = [((root,), 0)]
    while stack:
        members, depth = stack.pop()
        for value in members:
            if value is None:
                continue
            if isinstance(value, (str, int, float)):
                flaw = _scalar_flaw(value)
                if flaw is not None:
                    yield flaw
            elif isinstance(value, (Mapping, list, tuple)):
                if depth >= MAX_NESTING:
                    yield _nested().kind, _nested().message
                    return
                if isinstance(value, Mapping):
                    yield from _key_flaws(value)
                    stack.append((value, depth + 1))
                    stack.append((value.values(), depth + 1))
                else:
                    stack.append((value, depth + 1))
            else:
                yield (
                    "type",
                    f"a {type(value).__name__} is not JSON; send a text, number, bool, null, list or dict",
                )


def _scalar_flaw(value: str | float) -> tuple[str, str] | None:
    if isinstance(value, str):
        return None if value.isascii() or _encodable(value) else _HALF_A_PAIR
    if isinstance(value, int):
        return None if -_TOO_BIG < value < _TOO_BIG else _LONG_INTEGER
    if math.isfinite(value):
        return None
    return "not_finite", f"{value} is not JSON; send null, a number or a text"


def _key_flaws(value: Mapping[Any, JsonValue]) -> Iterator[tuple[str, str]]:
    """What is wrong with an object's keys as keys; what is wrong with them as values is found beside it."""
    if not isinstance(value, dict):
        yield "type", f"a {type(value).__name__} is not JSON; send a dict"
    elif all(type(key) is str for key in value):
        return
    names: set[str] = set()
    for key in value:
        if not isinstance(key, _SCALARS):
            yield "type", f"a key of type {type(key).__name__} is not JSON; keys are texts"
        elif (name := _key_name(key)) in names:
            yield "duplicate_key", _twice(name)
        else:
            names.add(name)


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


def _broken(error: json.JSONDecodeError) -> Flaw:
    return Flaw("not_json", f"not a JSON document: {error.msg.removesuffix(' at')} at character {error.pos}")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else text[:60] + "...")
