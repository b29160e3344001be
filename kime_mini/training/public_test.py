"""Questions of a public benchmark of this kind of model, sys1bench: for a test, never for training.

    python public_test.py SOURCES OUTPUT

SOURCES is the folder that fetch.py fills. The benchmark's own generators make the items, from our seed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SEED = 14
ITEMS = 30  # of each generator


def lines(sources: Path) -> Iterator[dict[str, Any]]:
    """One line an item: its state and its questions, without those whose right answer is no option."""
    sys.path.insert(0, str(sources))
    try:
        generators = importlib.import_module("sys1bench.generators")
    finally:
        sys.path.remove(str(sources))
    for name in sorted(generators.GENERATORS):
        for item in generators.get_generator(name, n=ITEMS, seed=SEED).generate():
            asked = {key: one for key, one in item.questions.items() if _has_answer(one)}
            if asked:
                yield {
                    "group": name,
                    "state": item.state,
                    "questions": {key: _question(one) for key, one in asked.items()},
                    "answers": {key: _answer(one) for key, one in asked.items()},
                }


def _has_answer(question: Any) -> bool:
    if question.type == "choice":
        return question.ground_truth in [option.key for option in question.criteria]
    return question.ground_truth is not None


def _question(question: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"type": question.type, "instructions": question.instructions}
    if question.type == "choice":
        asked["criteria"] = {option.key: option.description or None for option in question.criteria}
    elif question.type == "score":
        asked["criteria"] = [level.description or str(level.level) for level in question.criteria]
    return asked


def _answer(question: Any) -> str | int | bool:
    if question.type == "score":
        levels: Sequence[int] = [level.level for level in question.criteria]
        return levels.index(question.ground_truth)
    answer: str | bool = question.ground_truth
    return answer


def main() -> None:
    """Generate and write JSONL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path, help="the folder that fetch.py fills")
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    with given.output.open("w", encoding="utf-8") as file:
        for line in lines(given.sources):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
