"""Read a request in Laya's JSON form (a dict), or a typed `Request`, into a `CheckedRequest`.

It takes what the `laya` package takes and refuses what it refuses, but names every problem at once, each with
a path such as `questions["team"].criteria[1]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kime_grpc.core.checks import Checker
from kime_grpc.core.request import (
    DEFAULT_NOUL_LABELS,
    CacheMode,
    CheckedRequest,
    Choice,
    Noul,
    Question,
    QuestionType,
    Request,
    RequestLimits,
    Score,
)

_TYPES = {t.word: t for t in QuestionType}
_MISSING = object()


def parse_request(
    request: Request | Mapping[str, Any],
    limits: RequestLimits | None = None,
    max_row_tokens: int | None = None,
) -> CheckedRequest:
    """Check a request and bring it into the form that everything below works on.

    Args:
        request: a `Request`, or `{"state", "questions", "max_len"?, "head_max_len"?, "kime"?: {"cache"?}}`.
            Other keys are left alone.
        limits: how much it may hold.
        max_row_tokens: the longest row that the model takes, if it is known.

    Raises:
        InvalidError: with every problem.
    """
    checker = Checker(limits or RequestLimits(), max_row_tokens)
    form: Any = _form(request) if isinstance(request, Request) else request
    if not isinstance(form, Mapping):
        checker.add("", "type", 'a request is an object with "state" and "questions"', form)
        checker.finish()
    checker.state("state", form.get("state"))
    questions = _questions(checker, form.get("questions", _MISSING))
    for budget in ("max_len", "head_max_len"):
        checker.budget(budget, form.get(budget))
    checker.finish()
    return CheckedRequest(
        state=form["state"],
        questions=questions,
        max_len=form.get("max_len"),
        head_max_len=form.get("head_max_len"),
        cache=_cache_mode(form.get("kime")),
    )


def _form(request: Request) -> dict[str, Any]:
    """The parts as they are: `Request.to_laya` is for good requests, and this one is yet to be checked."""
    return {
        "state": request.state,
        "questions": request.questions,
        "max_len": request.max_len,
        "head_max_len": request.head_max_len,
        "kime": {"cache": request.cache},
    }


def _cache_mode(kime: Any) -> CacheMode:
    word = kime.get("cache") if isinstance(kime, Mapping) else None
    try:
        return CacheMode(word)
    except ValueError:
        return CacheMode.USE


def _questions(checker: Checker, questions: Any) -> tuple[Question, ...]:
    if questions is _MISSING:
        checker.add("questions", "missing", "the questions are missing; send an object of id to question")
        return ()
    if not isinstance(questions, Mapping):
        checker.add("questions", "type", "the questions must be an object of id to question", questions)
        return ()
    checker.question_count("questions", len(questions))
    if len(questions) > checker.limits.questions:
        return ()
    checker.question_ids((_question_path(key), key) for key in questions)
    read = [_question(checker, _question_path(key), key, question) for key, question in questions.items()]
    return tuple(question for question in read if question is not None)


def _question_path(key: Any) -> str:
    return f"questions[{_quoted(key)}]"


def _question(checker: Checker, path: str, key: Any, question: Any) -> Question | None:
    if isinstance(question, (Choice, Score, Noul)):
        question = question.to_laya()
    if not isinstance(question, Mapping):
        checker.add(
            path, "type", 'a question is an object with "type", "instructions" and "criteria"', question
        )
        return None
    word = question.get("type")
    question_type = _TYPES.get(word) if isinstance(word, str) else None
    if question_type is None:
        checker.add(f"{path}.type", "type", 'the type must be "choice", "score" or "noul"', word)
    checker.instructions(f"{path}.instructions", question.get("instructions"))
    if question_type is None:
        return None
    if "labels" in question and question_type is not QuestionType.NOUL:
        checker.add(
            f"{path}.labels", "unexpected", "only a noul has labels; leave them out", question["labels"]
        )
    read = {
        QuestionType.CHOICE: _choice_criteria,
        QuestionType.SCORE: _score_criteria,
        QuestionType.NOUL: _noul_criteria,
    }[question_type]
    criteria = read(checker, path, question)
    if criteria is None:
        return None
    labels, descriptions = criteria
    order = None
    if "option_order" in question:
        order = checker.option_order(f"{path}.option_order", question["option_order"], len(descriptions))
    return Question(key, question_type, question.get("instructions"), labels, descriptions, order)


_Criteria = tuple[tuple[Any, ...], tuple[Any, ...]]


def _choice_criteria(checker: Checker, path: str, question: Mapping[str, Any]) -> _Criteria | None:
    criteria = question.get("criteria")
    path = f"{path}.criteria"
    if isinstance(criteria, Mapping):
        checker.labels(path, [(f"{path}[{_quoted(label)}]", label) for label in criteria])
        for label, description in criteria.items():
            checker.json_value(f"{path}[{_quoted(label)}]", description)
        return tuple(criteria), tuple(criteria.values())
    if isinstance(criteria, list):
        checker.labels(path, [(f"{path}[{i}]", label) for i, label in enumerate(criteria)])
        return tuple(criteria), (None,) * len(criteria)
    checker.add(
        path,
        "missing" if criteria is None else "type",
        "a choice takes its criteria as an object of label to description, or as a list of labels",
        criteria,
    )
    return None


def _score_criteria(checker: Checker, path: str, question: Mapping[str, Any]) -> _Criteria | None:
    criteria = question.get("criteria")
    path = f"{path}.criteria"
    if isinstance(criteria, list):
        checker.levels(path, [(f"{path}[{i}]", level) for i, level in enumerate(criteria)])
        return (), tuple(criteria)
    checker.add(
        path,
        "missing" if criteria is None else "type",
        "a score takes its criteria as a list of level descriptions, lowest first",
        criteria,
    )
    return None


def _noul_criteria(checker: Checker, path: str, question: Mapping[str, Any]) -> _Criteria | None:
    labels: tuple[str, str] = DEFAULT_NOUL_LABELS
    words = question.get("labels")
    if words is not None:
        if isinstance(words, Mapping) and set(words) == {"false", "true"}:
            labels = checker.noul_labels(f"{path}.labels", words["false"], words["true"])
        else:
            checker.add(
                f"{path}.labels", "label", 'labels must have exactly "false" and "true", each a text', words
            )
    criteria = question.get("criteria")
    path = f"{path}.criteria"
    if criteria is None:
        return labels, (None, None)
    if not isinstance(criteria, Mapping):
        checker.add(
            path, "type", 'a noul takes its criteria as an object with "true" and "false", or none', criteria
        )
        return None
    sides: dict[str, Any] = {}
    for key, description in criteria.items():
        side = str(key).lower() if isinstance(key, (str, bool)) else None
        if side in ("true", "false"):
            sides[side] = description
            checker.json_value(f"{path}[{_quoted(key)}]", description)
        else:
            checker.add(
                f"{path}[{_quoted(key)}]",
                "unexpected",
                'the criteria of a noul have only "true" and "false"; labels word the answers differently',
                key,
            )
    return labels, (sides.get("false"), sides.get("true"))


def _quoted(key: Any) -> str:
    try:
        text = str(key)
    except ValueError:  # Python writes no integer of over 4,300 digits.
        text = f"a long {type(key).__name__}"
    return json.dumps(text if len(text) <= 80 else text[:80] + "...", ensure_ascii=not text.isprintable())
