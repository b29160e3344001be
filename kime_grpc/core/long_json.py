"""Long JSON to its rendering, a piece at a time, so that other threads get their turns.

The standard library parses and writes a document in one call each, and no other thread runs until it returns:
some tenths of a second for a few megabytes. Collecting the garbage of a tree of a million values, and letting
go of it, take as long again. So containers that are long are walked here, and the library gets what is in
them some kilobytes at a time; a document never becomes a tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

# A container of more characters is walked here: this many are parsed and written in about a millisecond.
PIECE = 16 * 1024
# So many values are written in about as long.
MEMBERS = 1000
# Deeper than anything that is let in, and no deeper than the library goes.
DEEPEST = 1000

_Container: TypeAlias = dict[object, object] | list[object] | tuple[object, ...]

_SPACE = re.compile(r"[ \t\n\r]*+")
# Possessive, and its closing quote optional: a text that never ends is read once, not once a quote. Branches
# that begin with a character each are what `re` looks for fast.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|\[|\]|\{|\}', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Structure:
    """How a document's brackets stand, strings left out.

    Attributes:
        nesting: how deep they nest; counted no further than one beyond what was allowed.
        long: where the containers of more than `PIECE` characters begin.
    """

    nesting: int
    long: AbstractSet[int]

    def is_long(self, text: str) -> bool:
        """Whether `text`, whose structure this is, is a long container itself."""
        return _space(text, 0) in self.long


def structure(text: str, max_nesting: int) -> Structure:
    """Look at a document's brackets; cheap for the many texts with few of them."""
    brackets = text.count("[") + text.count("{")
    if brackets == 0 or (brackets <= max_nesting and len(text) <= PIECE):
        return Structure(0, frozenset())
    deepest = 0
    opened: list[int] = []
    long = set()
    for match in _TOKENS.finditer(text):
        bracket = match.group()
        if bracket in "[{":
            opened.append(match.start())
            deepest = max(deepest, len(opened))
            if deepest > max_nesting:
                return Structure(deepest, frozenset())
        elif bracket in "]}" and opened:
            start = opened.pop()
            if match.start() - start > PIECE:
                long.add(start)
    return Structure(deepest, long | set(opened))


class LongDocument:
    """One document on its way to its rendering."""

    def __init__(
        self,
        text: str,
        long: AbstractSet[int],
        decoder: json.JSONDecoder,
        encode: Callable[[object], str],
        on_duplicate: Callable[[str], None],
    ) -> None:
        """Render `text`.

        Args:
            text: the document.
            long: where its long containers begin.
            decoder: parses all that is not long.
            encode: writes it.
            on_duplicate: hears of every key that comes again in a long object.
        """
        self._text = text
        self._long = long
        self._decoder = decoder
        self._encode = encode
        self._on_duplicate = on_duplicate
        self._pieces: list[str] = []

    def render(self) -> str:
        """The document's rendering.

        Raises:
            json.JSONDecodeError: it is none; at the place and in the words of the standard library.
        """
        end = _space(self._text, self._container(_space(self._text, 0)))
        if end < len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, end)
        return "".join(self._pieces)

    def _container(self, start: int) -> int:
        """Render the long container that begins at `start`; gives where it ends."""
        text = self._text
        is_object = text[start] == "{"
        closing = "}" if is_object else "]"
        run = _Run(self._encode, self._pieces, is_object=is_object)
        keys: set[str] = set()
        key = ""
        self._pieces.append(text[start])
        end = run_start = _space(text, start + 1)
        if text.startswith(closing, end):
            self._pieces.append(closing)
            return end + 1
        is_flat = True
        while True:
            if is_flat and end == run_start:
                end, members = self._piece(text[start], closing, end)
                is_flat = end > run_start
                if is_flat:
                    if is_object:
                        self._note(members, keys)
                    run.write(members)
                    run_start = end
                    continue
            if is_object:
                key, end = self._key(end)
                self._note((key,), keys)
            if end in self._long:
                run.begin_long(key)
                end = run_start = self._container(end)
            else:
                value, end = self._decoder.raw_decode(text, end)
                run.add(key, value)
            end = _space(text, end)
            if text.startswith(closing, end):
                run.flush()
                self._pieces.append(closing)
                return end + 1
            if not text.startswith(",", end):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, end)
            end = _space(text, end + 1)
            if end - run_start > PIECE:
                run.flush()
                run_start = end

    def _piece(self, opening: str, closing: str, start: int) -> tuple[int, Collection[str]]:
        """Read a piece of a container's members in one go, as a container of their own.

        Whatever reads well up to a comma, reads the same in the document. Where no short members begin at
        `start`, or the comma is inside one of them, nothing is read: the end is then `start`.
        """
        comma = self._text.rfind(",", start, start + PIECE)
        if comma < 0:
            return start, ()
        try:
            members, end = self._decoder.raw_decode(opening + self._text[start:comma] + closing)
        except json.JSONDecodeError:
            return start, ()
        if not members or end < comma - start + 2:
            return start, ()
        return _space(self._text, comma + 1), members

    def _note(self, more: Collection[str], keys: set[str]) -> None:
        """Say which of a container's further keys it has already."""
        if not keys.isdisjoint(more):
            for key in more:
                if key in keys:
                    self._on_duplicate(key)
        keys.update(more)

    def _key(self, start: int) -> tuple[str, int]:
        """A member's key, and where its value begins."""
        text = self._text
        if not text.startswith('"', start):
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, start)
        key, end = self._decoder.raw_decode(text, start)
        end = _space(self._text, end)
        if not text.startswith(":", end):
            raise json.JSONDecodeError("Expecting ':' delimiter", text, end)
        return key, _space(self._text, end + 1)


class _Run:
    """Members of one container that are short and follow one another, written in one go.

    Attributes:
        count: how many values there are, those in containers included.
    """

    def __init__(self, encode: Callable[[object], str], pieces: list[str], *, is_object: bool) -> None:
        self.count = 0
        self._encode = encode
        self._pieces = pieces
        self._is_object = is_object
        self._values: list[object] = []
        self._named: dict[object, object] = {}
        self._is_first = True

    def add(self, key: object, value: object) -> None:
        """One more member; the key counts in an object only."""
        self.count += 1
        if self._is_object:
            self._named[key] = value
        else:
            self._values.append(value)

    def flush(self) -> None:
        """Write what was added."""
        members = self._named if self._is_object else self._values
        if members:
            self.write(members)
            self._values, self._named, self.count = [], {}, 0

    def write(self, members: Collection[object]) -> None:
        """Write members; nothing that was added may wait."""
        self._separate()
        self._pieces.append(self._encode(members)[1:-1])

    def begin_long(self, key: object) -> None:
        """A long member follows: write what is in front of it."""
        self.flush()
        self._separate()
        if self._is_object:
            self._pieces.append(self._encode({key: 0})[1:-2])

    def _separate(self) -> None:
        if not self._is_first:
            self._pieces.append(", ")
        self._is_first = False


class _Open:
    """A container that is being rendered: what is left of its members, and what was not written yet."""

    def __init__(
        self,
        container: _Container,
        encode: Callable[[object], str],
        pieces: list[str],
    ) -> None:
        is_object = isinstance(container, dict)
        self.members: Iterator[tuple[object, object]] = (
            iter(container.items()) if isinstance(container, dict) else enumerate(container)
        )
        self.closing = "}" if is_object else "]"
        self.run = _Run(encode, pieces, is_object=is_object)
        pieces.append("{" if is_object else "[")


def rendered(value: object, encode: Callable[[object], str]) -> str:
    """Render a value as `encode` does, a piece at a time.

    Args:
        value: JSON.
        encode: writes JSON, with ", " between members and ": " after keys.
    """
    if not isinstance(value, (dict, list, tuple)) or _count(value) <= MEMBERS:
        return encode(value)
    pieces: list[str] = []
    opened = [_Open(value, encode, pieces)]
    while opened:
        if len(opened) > DEEPEST:
            # It holds itself, or as good as that: the library says so.
            return encode(value)
        innermost = opened[-1]
        run = innermost.run
        for key, member in innermost.members:
            if isinstance(member, (dict, list, tuple)):
                inside = _count(member)
                if inside > MEMBERS:
                    run.begin_long(key)
                    opened.append(_Open(member, encode, pieces))
                    break
                run.count += inside
            run.add(key, member)
            if run.count > MEMBERS:
                run.flush()
        else:
            run.flush()
            pieces.append(innermost.closing)
            opened.pop()
    return "".join(pieces)


def _count(container: _Container) -> int:
    """How many values are in a container, at any depth; counted no further than a few beyond `MEMBERS`."""
    count = 0
    stack: list[_Container] = [container]
    while stack and count <= MEMBERS:
        inner = stack.pop()
        count += len(inner)
        if count <= MEMBERS:
            members = inner.values() if isinstance(inner, dict) else inner
            stack.extend(member for member in members if isinstance(member, (dict, list, tuple)))
    return count


def _space(text: str, start: int) -> int:
    """Where the white space that begins at `start` ends."""
    match = _SPACE.match(text, start)
    return start if match is None else match.end()
