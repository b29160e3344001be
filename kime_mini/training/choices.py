"""More choices about the authored texts: among the statements of their nouls, which one holds.

    python choices.py OUTPUT AUTHORED...

The authors wrote four nouls for each choice. So what was true of a text stands among what was false of it and
what is true of other texts of the same use: a choice that needs reading, for every text that has statements.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SEED = 13
SHORTEST = 18  # characters; what is shorter seldom says which text it is about
ASKED = (
    "Which statement holds?",
    "Which of these is true of the text?",
    "Pick the one that the text supports.",
    "Only one of these is right. Which?",
    "What does this say?",
    "best description",
    "Which sentence agrees with what is given?",
    "correct statement",
)
ASKED_FALSE = (
    "Which of these is false?",
    "Which statement does the text contradict or leave open?",
    "Pick the one that does not hold.",
    "the wrong statement",
)


def lines(authored: Sequence[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """One line a text: a choice with statements about other texts, and one with false ones about this."""
    by_use = defaultdict(list)
    said = [(_statements(line, holds=True), _statements(line, holds=False)) for line in authored]
    for line, (true, _) in zip(authored, said, strict=True):
        by_use[line["group"]] += true
    for line, (true, false) in zip(authored, said, strict=True):
        made = []
        if true:
            drawn = rng.sample(by_use[line["group"]], min(8, len(by_use[line["group"]])))
            elsewhere = [one for one in drawn if one not in true]
            made.append(_choice(rng, rng.choice(ASKED), rng.choice(true), elsewhere[: rng.randint(2, 7)]))
        if true and false:
            others = rng.sample(false, min(len(false), rng.randint(1, 4)))
            made.append(_choice(rng, rng.choice(ASKED), rng.choice(true), others))
        if len(true) > 1 and false and rng.random() < 0.4:
            others = rng.sample(true, min(len(true), rng.randint(2, 4)))
            made.append(_choice(rng, rng.choice(ASKED_FALSE), rng.choice(false), others))
        asked = {f"q{i}": choice for i, choice in enumerate(filter(None, made))}
        if asked:
            yield {
                "group": line["group"],
                "state": line["state"],
                "questions": {name: question for name, (question, _) in asked.items()},
                "answers": {name: right for name, (_, right) in asked.items()},
            }


def _statements(line: dict[str, Any], *, holds: bool) -> list[str]:
    """The nouls that hold, or the others, that are statements and no questions."""
    return [
        question["instructions"]
        for name, question in line["questions"].items()
        if question["type"] == "noul"
        and line["answers"][name] is holds
        and len(question["instructions"]) >= SHORTEST
        and not question["instructions"].endswith("?")
        and question.get("criteria") is None
    ]


def _choice(
    rng: random.Random, asked: str, right: str, others: Sequence[str]
) -> tuple[dict[str, Any], str] | None:
    """A question and its answer; None if there is nothing to choose from."""
    labels = list(dict.fromkeys([right, *others]))
    if len(labels) < 2:
        return None
    rng.shuffle(labels)
    return {"type": "choice", "instructions": asked, "criteria": labels}, right


def main() -> None:
    """Read the authored files and write JSONL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("authored", type=Path, nargs="+")
    given = parser.parse_args()
    rng = random.Random(SEED)  # noqa: S311
    authored = [
        json.loads(line) for file in given.authored for line in file.read_text(encoding="utf-8").splitlines()
    ]
    with given.output.open("w", encoding="utf-8") as file:
        for line in lines(authored, rng):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
