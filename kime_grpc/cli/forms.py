"""Responses and errors as JSON: what `--format` and `--jsonl` print."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

from kime_grpc.client.errors import CallError
from kime_grpc.core.answers import Answer, ChoiceAnswer, Response, ScoreAnswer
from kime_grpc.core.errors import InvalidError, KimeError, Problem
from kime_grpc.server.status import code_name

_LONGEST_VALUE = 200


class Format(enum.Enum):
    """In which form a response is printed."""

    KIME = "kime"
    LAYA = "laya"
    JEV = "jev"


def response_form(response: Response, form: Format) -> dict[str, Any]:
    """A response as JSON."""
    if form is Format.LAYA:
        return response.to_laya()
    if form is Format.JEV:
        return response.to_jev()
    usage, timing = response.usage, response.timing
    return {
        "model": response.model,
        "revision": response.revision,
        "calibration_id": response.calibration_id,
        "answers": {key: _answer(answer) for key, answer in response.answers.items()},
        "usage": {
            "input_tokens": usage.input_tokens,
            "state_tokens": usage.state_tokens,
            "state_tokens_dropped": usage.state_tokens_dropped,
            "dropped": dict(usage.dropped),
            "collapsed": {
                key: {"total": c.total, "distinct": c.distinct, "tokens_per_option": c.tokens_per_option}
                for key, c in usage.collapsed.items()
            },
            "cached": list(usage.cached),
        },
        "timing": {
            "queue_seconds": timing.queue,
            "tokenize_seconds": timing.tokenize,
            "device_seconds": timing.device,
            "batches": timing.batches,
        },
    }


def error_form(error: KimeError) -> dict[str, Any]:
    """An error as JSON."""
    if isinstance(error, CallError):
        code, message, problems = error.code.name, error.message, error.violations
    else:
        code, message = code_name(error), str(error)
        problems = error.problems if isinstance(error, InvalidError) else ()
    said = {
        "code": code,
        "reason": error.reason,
        "message": printable(message),
        "problems": [_problem(p) for p in problems],
    }
    return {"error": said}


def to_line(value: Any) -> str:
    """One line of JSON, characters beyond ASCII as they are."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if _is_encodable(text) else json.dumps(value, allow_nan=False)


def printable(text: str) -> str:
    """A text that can be written as UTF-8: half surrogate pairs as escapes."""
    return text.encode(errors="backslashreplace").decode()


def _answer(answer: Answer) -> dict[str, Any]:
    confidence = {
        "entropy": answer.confidence.entropy,
        "margin": answer.confidence.margin,
        "answer": answer.confidence.answer,
        "act": answer.confidence.act,
    }
    said: dict[str, Any]
    if isinstance(answer, ChoiceAnswer):
        said = {"type": "choice", "choice": answer.choice, "labels": list(answer.labels)}
    elif isinstance(answer, ScoreAnswer):
        said = {"type": "score", "score": answer.score, "levels": list(answer.levels)}
    else:
        said = {"type": "noul", "noul": answer.noul, "labels": list(answer.labels)}
    return said | {"probabilities": list(answer.probabilities), "confidence": confidence}


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "path": printable(problem.path),
        "kind": problem.kind,
        "message": printable(problem.message),
        "value": shown(problem.value),
    }


def shown(value: Any) -> Any:
    """An offending value, short and fit for JSON: as it is where it can be, else a text of its beginning."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that is no JSON"
    if len(text) <= _LONGEST_VALUE and _is_encodable(text):
        return value
    return printable((value if isinstance(value, str) else text)[:_LONGEST_VALUE]) + "..."


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
