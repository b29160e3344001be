"""The rules for a request's parts, whatever form it came in.

Readers of the two forms (Laya's dict, the wire's messages) walk their own structure and call these with paths
in the caller's terms; every problem is collected, none ends the walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kime_grpc.core import json_text
from kime_grpc.core.errors import InvalidError, Problem
from kime_grpc.core.request import DEFAULT_NOUL_LABELS, Label, RequestLimits

# A request of a few megabytes can have some hundred thousand problems, and nobody reads more than the first.
MOST_PROBLEMS = 256
# Of a value in a message, in characters.
MOST_SHOWN = 80


class Checker:
    """Collects the problems of one request.

    Attributes:
        problems: the first `MOST_PROBLEMS` of them.
        total: how many there are.
    """

    def __init__(self, limits: RequestLimits, max_row_tokens: int | None = None) -> None:
        """Check against `limits`, and budgets against `max_row_tokens` where it is known."""
        self.limits = limits
        self.max_row_tokens = max_row_tokens
        self.problems: list[Problem] = []
        self.total = 0

    def add(self, path: str, kind: str, message: str, value: Any = None) -> None:
        """Note a problem."""
        self.total += 1
        if self.total <= MOST_PROBLEMS:
            self.problems.append(Problem(path, kind, message, value))

    def finish(self) -> None:
        """Raise an `InvalidError` with the problems, if there are any."""
        if self.problems:
            raise InvalidError(self.problems, self.total)

    def json_value(self, path: str, value: Any) -> bool:
        """A value is JSON that the model can read."""
        flaws = json_text.check(value)
        for flaw in flaws:
            self.add(path, flaw.kind, flaw.message, value)
        return not flaws

    def json_document(self, path: str, text: str) -> Any:
        """A text is one JSON document; gives what `json_text.read` does, or None with the problems noted."""
        value, flaws = json_text.read(text)
        for flaw in flaws:
            self.add(path, flaw.kind, flaw.message, text)
        return None if flaws else value

    def state(self, path: str, state: Any) -> None:
        """A state is text or JSON other than null."""
        if state is None:
            self.add(path, "missing", "the state is null; send what the questions are about, text or JSON")
        else:
            self.json_value(path, state)

    def question_count(self, path: str, count: int) -> None:
        """A request has no more questions than the limit."""
        if count > self.limits.questions:
            self.add(
                path,
                "too_many",
                f"{count} questions, and at most {self.limits.questions} are taken; split the request",
                count,
            )

    def question_ids(self, entries: Iterable[tuple[str, Any]]) -> None:
        """Ids are non-blank texts (or whole numbers), each once in a request. `entries` are (path, id)."""
        seen: dict[str, str] = {}
        for path, key in entries:
            if not isinstance(key, (str, int)) or (isinstance(key, str) and not key.strip()):
                self.add(path, "id", "a question id must be a text that is not blank; name the question", key)
                continue
            if not self.json_value(path, key):
                continue
            first = seen.get(str(key))
            if first is None:
                seen[str(key)] = path
            else:
                # Not by comparing paths: 1 and "1" are one id, and in Laya's form one path.
                self.add(
                    path, "duplicate", f"the question id {_shown(str(key))} is already taken by {first}", key
                )

    def instructions(self, path: str, instructions: Any) -> None:
        """Instructions are a text, number, list or object that says something."""
        if instructions is None:
            self.add(path, "missing", "instructions are missing; say what the model should answer")
        elif not isinstance(instructions, (str, dict, list, int, float)):
            self.add(
                path,
                "type",
                f"instructions must be text or JSON, not {_type_word(instructions)}",
                instructions,
            )
        elif (isinstance(instructions, str) and not instructions.strip()) or (
            isinstance(instructions, (dict, list)) and not instructions
        ):
            self.add(path, "empty", "instructions are empty; say what the model should answer", instructions)
        else:
            self.json_value(path, instructions)

    def labels(self, path: str, entries: Sequence[tuple[str, Any]]) -> None:
        """A choice's labels: at least one, scalars, each once after trimming. `entries` are (path, label)."""
        if not entries:
            self.add(path, "empty", "a choice needs at least one option; list the labels to choose from")
        if len(entries) > self.limits.options:
            self.add(
                path,
                "too_many",
                f"{len(entries)} options, and at most {self.limits.options} are taken; leave some out",
                len(entries),
            )
            return
        by_value: dict[Label, str] = {}
        by_text: dict[str, str] = {}
        for label_path, label in entries:
            if not isinstance(label, (str, int, float, bool)):
                self.add(
                    label_path,
                    "type",
                    f"a label is both option text and answer, so it must be a text, number or bool, "
                    f"not {_type_word(label)}",
                    label,
                )
                continue
            if not self.json_value(label_path, label):
                continue
            first = by_value.get(label, by_text.get(str(label).strip()))
            if first is None:
                by_value[label] = by_text[str(label).strip()] = label_path
            else:
                self.add(
                    label_path,
                    "duplicate",
                    f"the label {_shown(label)} repeats {first}; every option needs its own "
                    "(1, 1.0 and true are one label, and spaces around a label do not count)",
                    label,
                )

    def levels(self, path: str, entries: Sequence[tuple[str, Any]]) -> None:
        """A score's levels: at least one, none of them null. `entries` are (path, level)."""
        if not entries:
            self.add(path, "empty", "a score needs at least one level; describe the levels, lowest first")
        if len(entries) > self.limits.levels:
            self.add(
                path,
                "too_many",
                f"{len(entries)} levels, and at most {self.limits.levels} are taken; merge some",
                len(entries),
            )
            return
        for level_path, level in entries:
            if level is None:
                self.add(level_path, "missing", "the level is null; say what it means")
            else:
                self.json_value(level_path, level)

    def noul_labels(
        self, path: str, false_label: Any, true_label: Any, fields: tuple[str, str] = ("false", "true")
    ) -> tuple[str, str]:
        """A noul's words: distinct texts, not blank after trimming. Gives them trimmed.

        `fields` is what the caller's form calls the two.
        """
        words = []
        for side, field, label in zip(("false", "true"), fields, (false_label, true_label), strict=True):
            if not isinstance(label, str) or not label.strip():
                self.add(
                    f"{path}.{field}", "label", f"the word for {side} must be a text that is not blank", label
                )
            elif self.json_value(f"{path}.{field}", label):
                words.append(label.strip())
        if len(words) < 2:
            return DEFAULT_NOUL_LABELS
        if words[0] == words[1]:
            self.add(
                path,
                "duplicate",
                f"both words are {_shown(words[0])}; the two sides need different ones",
                words[0],
            )
        return words[0], words[1]

    def option_order(self, path: str, order: Any, options: int) -> tuple[int, ...] | None:
        """An order names each of the `options` once. Gives it as a tuple, or None with the problem noted."""
        whole = isinstance(order, (list, tuple)) and all(type(i) is int for i in order)
        if whole and sorted(order) == list(range(options)):
            return tuple(order)
        self.add(
            path,
            "order",
            f"option_order must name each of 0 to {options - 1} once, one slot an option"
            if options
            else "option_order must be empty where there are no options",
            order,
        )
        return None

    def budget(self, path: str, value: Any) -> None:
        """A budget override is a whole number of tokens from 1 on, within what the model takes."""
        if value is None:
            return
        if not isinstance(value, int) or isinstance(value, bool):
            self.add(path, "type", f"a budget is a whole number of tokens, not {_type_word(value)}", value)
        elif value < 1:
            self.add(path, "range", "a budget is at least 1 token; leave it out for the model's own", value)
        elif self.max_row_tokens is not None and value > self.max_row_tokens:
            self.add(path, "range", f"this model takes rows of at most {self.max_row_tokens} tokens", value)


def _shown(value: Any) -> str:
    """A value in a message, cut so that what to do about it is still read."""
    # A long text is cut before it is written, too: its escapes would make it several times as long.
    text = repr(value[: MOST_SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."


def _type_word(value: Any) -> str:
    return {
        type(None): "null",
        bool: "a bool",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        tuple: "a tuple",
        dict: "an object",
    }.get(type(value), f"a {type(value).__name__}")
