"""Labelled questions: JSONL files of requests in Laya's form, with an `answers` object beside them.

    {"state": ..., "questions": {"q": {"type": "choice", ...}}, "answers": {"q": "label"}, "group": "mail"}

An answer is a choice's label, a score's level (0 is the lowest) or a noul's true or false. Where people or a
better model were not of one mind it is a list of probabilities instead, one an option, in the options' order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kime_grpc.core import json_text
from kime_grpc.core.errors import InvalidError
from kime_grpc.core.json_text import JsonValue
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.request import Question, QuestionType

MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled question.

    Attributes:
        state: what it is about.
        question: the question.
        target: a probability for each option, in the options' own order.
        group: what kind of question it is, for reports; may be empty.
        where: the file and line that it comes from.
    """

    state: JsonValue
    question: Question
    target: tuple[float, ...]
    group: str
    where: str

    @property
    def answer(self) -> int:
        """The index of the most probable option; the first of equals."""
        return self.target.index(max(self.target))


def read_examples(files: Sequence[Path]) -> list[Example]:
    """All labelled questions of some files, in order.

    Raises:
        OSError: a file cannot be read.
        ValueError: names what is wrong with every bad line, the first `MAX_LISTED` of them.
    """
    examples: list[Example] = []
    problems: list[str] = []
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip():
                where = f"{file}:{number}"
                try:
                    examples += _of_line(line, where)
                except (InvalidError, ValueError) as error:
                    problems.append(f"{where}: {error}")
    if problems:
        more = len(problems) - MAX_LISTED
        listed = problems[:MAX_LISTED] + ([f"and {more} more lines"] if more > 0 else [])
        raise ValueError("\n".join(listed))
    return examples


def _of_line(line: str, where: str) -> Iterator[Example]:
    value, flaws = json_text.parse(line)
    if flaws:
        raise ValueError("; ".join(flaw.message for flaw in flaws))
    request = parse_request(value)
    answers = value.get("answers")
    if not isinstance(answers, dict):
        raise ValueError("answers must be an object of question id to answer")  # noqa: TRY004 - data, not code
    group = value.get("group", "")
    for question in request.questions:
        if question.key in answers:
            target = _target(question, answers[question.key])
            yield Example(request.state, question, target, str(group), where)
    if unknown := answers.keys() - {question.key for question in request.questions}:
        raise ValueError(f"answers to questions that are not asked: {', '.join(sorted(unknown))}")


def _target(question: Question, answer: Any) -> tuple[float, ...]:
    """A probability for each option."""
    options = len(question.descriptions)
    if isinstance(answer, list):
        good = len(answer) == options and all(isinstance(p, (int, float)) and p >= 0 for p in answer)
        if not good or not math.isclose(sum(answer), 1, abs_tol=1e-3):
            raise ValueError(f"answers.{question.key}: give {options} probabilities with the sum 1")
        return tuple(p / sum(answer) for p in answer)
    index = _index(question, answer)
    return tuple(float(i == index) for i in range(options))


def _index(question: Question, answer: Any) -> int:
    if question.type is QuestionType.CHOICE:
        if answer in question.labels:
            return question.labels.index(answer)
        raise ValueError(f"answers.{question.key}: {answer!r} is none of the labels")
    if question.type is QuestionType.NOUL:
        if isinstance(answer, bool):
            return int(answer)
        raise ValueError(f"answers.{question.key}: a noul's answer is true or false, not {answer!r}")
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(question.descriptions):
        return answer
    last = len(question.descriptions) - 1
    raise ValueError(f"answers.{question.key}: a score's answer is a level from 0 to {last}, not {answer!r}")
