"""The same question in other clothes: what must not matter is changed at random, so that it is not learnt.

The order of options, whether they have descriptions, how labels and keys are spelled, whether the state is a
text or a field of an object, and the two words of a noul.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable
from typing import Any

from kime_grpc.core.json_text import JsonValue
from kime_grpc.core.request import Question, QuestionType
from kime_grpc.training.examples import Example
from kime_grpc.training.settings import TrainSettings

# (for false, for true), and the other way about where the words mean nothing.
NOUL_WORDS = (
    ("no", "yes"),
    ("false", "true"),
    ("wrong", "right"),
    ("incorrect", "correct"),
    ("absent", "present"),
    ("N", "Y"),
    ("not so", "so"),
    ("does not hold", "holds"),
    ("unsupported", "supported"),
    ("disagree", "agree"),
    ("0", "1"),
)
NOUL_SYMBOLS = (("A", "B"), ("B", "A"), ("x", "y"), ("left", "right"), ("red", "green"), ("one", "two"))
FIELDS = ("text", "message", "body", "content", "input", "note", "post", "document", "data", "payload")

_WORDS = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def augmented(example: Example, settings: TrainSettings, rng: random.Random) -> Example:
    """An example that asks the same, changed as the settings say."""
    question, state = example.question, example.state
    if question.type is QuestionType.CHOICE:
        if rng.random() < settings.drop_descriptions:
            question = dataclasses.replace(question, descriptions=(None,) * len(question.descriptions))
        if rng.random() < settings.change_case:
            question = _respelled(question, rng.choice(_SPELLINGS))
    elif question.type is QuestionType.NOUL and rng.random() < settings.noul_words:
        question = _reworded(question, rng)
    if isinstance(state, str) and rng.random() < settings.wrap_state:
        state = {rng.choice(FIELDS): state}
    elif (
        isinstance(state, (dict, list))
        and rng.random() < settings.change_case
        and not _names_keys(question, state)
    ):
        state = _respelled_keys(state, rng.choice(_SPELLINGS))
    if question.option_order is None and rng.random() < settings.shuffle_options:
        question = dataclasses.replace(question, option_order=_order(question, rng))
    return dataclasses.replace(example, question=question, state=state)


def reversed_order(question: Question) -> Question:
    """A question whose options stand in the reverse order."""
    order = question.option_order or tuple(range(len(question.descriptions)))
    return dataclasses.replace(question, option_order=order[::-1])


def _order(question: Question, rng: random.Random) -> tuple[int, ...]:
    """Any order for a choice; up or down for levels; either side first for a noul."""
    order = list(range(len(question.descriptions)))
    if question.type is QuestionType.CHOICE:
        rng.shuffle(order)
    elif rng.random() < 0.5:
        order.reverse()
    return tuple(order)


def _reworded(question: Question, rng: random.Random) -> Question:
    """A noul with other words. Words that mean nothing get descriptions that say which is which."""
    if rng.random() < 0.8:
        return dataclasses.replace(question, labels=rng.choice(NOUL_WORDS))
    descriptions = tuple(
        given if given is not None else said
        for given, said in zip(question.descriptions, ("it is not so", "it is so"), strict=True)
    )
    return dataclasses.replace(question, labels=rng.choice(NOUL_SYMBOLS), descriptions=descriptions)


def _respelled(question: Question, spell: Callable[[list[str]], str]) -> Question:
    """A choice with labels in another spelling, unless two would become one."""
    labels = tuple(_spelled(label, spell) if isinstance(label, str) else label for label in question.labels)
    if len({str(label) for label in labels}) < len(labels):
        return question
    return dataclasses.replace(question, labels=labels)


def _respelled_keys(value: JsonValue, spell: Callable[[list[str]], str]) -> Any:
    if isinstance(value, list):
        return [_respelled_keys(part, spell) for part in value]
    if isinstance(value, dict):
        spelled = {_spelled(key, spell): _respelled_keys(part, spell) for key, part in value.items()}
        return spelled if len(spelled) == len(value) else value
    return value


def _spelled(text: str, spell: Callable[[list[str]], str]) -> str:
    words = _WORDS.findall(_HUMP.sub(" ", text))
    return spell(words) if words and len(words) <= 6 else text


def _names_keys(question: Question, state: JsonValue) -> bool:
    """Whether a question speaks of a key of the state, which must then stay as it is."""
    said = f"{question.instructions} {question.descriptions} {question.labels}"
    return any(key in said for key in _keys(state))


def _keys(value: JsonValue) -> set[str]:
    if isinstance(value, list):
        return {key for part in value for key in _keys(part)}
    if isinstance(value, dict):
        return {*value, *(key for part in value.values() for key in _keys(part))}
    return set()


_SPELLINGS: tuple[Callable[[list[str]], str], ...] = (
    lambda words: "_".join(words).lower(),
    lambda words: "_".join(words).upper(),
    lambda words: "-".join(words).lower(),
    lambda words: " ".join(words).lower(),
    lambda words: " ".join(word.capitalize() for word in words),
    lambda words: "".join(word.capitalize() for word in words),
    lambda words: words[0].lower() + "".join(word.capitalize() for word in words[1:]),
)
