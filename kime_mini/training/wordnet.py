"""Questions about WordNet's words and examples: what the model learns to read with, before it decides.

    python wordnet.py DICTIONARY OUTPUT

A word in an example is replaced by a synonym or by something more general (what is said still holds), or by
an antonym, a sibling or something more special (it does not, or nobody knows). A gloss is matched with its
word and a word with its gloss, a word in an example with the sense that it has there, and a thing with what
it is a kind of and is about. Most of it are choices among near neighbours.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SEED = 11
# How many lines of each kind are kept, of the many that there are.
READING, SENSES, WORDS, MEANINGS, KINDS, FIELDS = 9_000, 5_000, 14_000, 9_000, 3_000, 7_000

# WordNet's lexicographer files that group nouns by what they are about (lexnames(5WN)), in plain words.
NOUN_FIELDS = {
    4: "acts or actions",
    5: "animals",
    6: "man-made objects",
    7: "attributes of people and objects",
    8: "body parts",
    9: "thoughts and knowledge",
    10: "communication",
    11: "natural events",
    12: "feelings and emotions",
    13: "foods and drinks",
    14: "groups of people or objects",
    15: "places",
    17: "natural objects",
    18: "people",
    20: "plants",
    21: "possession and money",
    22: "natural processes",
    23: "quantities and units",
    26: "states of affairs",
    27: "substances",
    28: "time",
}
FRAMES = (
    "{}",
    "{}",
    "{}",
    "The text says: {}",
    "It is said that {}",
    "Is this said: {}",
    "According to the text, {}",
)
SAID = (
    "Which of these does the text say?",
    "Pick the statement that holds.",
    "Which one follows from the text?",
    "What is said here, in other words?",
)
EXPLAINED = ("Which word is explained?", "What is this?", "Find the word for it.", "term")
MEANT = ("What does the word mean?", "Pick the meaning.", "definition", "Which of these explains it?")
ABOUT = ("What is this about?", "category", "To which field does it belong?", "topic")
LEADING = ("a ", "an ", "the ", "to ")


@dataclass(slots=True)
class Synset:
    """A set of words of one meaning."""

    part: str
    field: int
    words: list[str]
    gloss: str
    examples: list[str]
    pointers: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))


def read(folder: Path) -> dict[tuple[str, str], Synset]:
    """All synsets, by part of speech and offset; the files' form is in wndb(5WN)."""
    found = {}
    for name, part in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        for line in (folder / f"data.{name}").read_text(encoding="utf-8").splitlines():
            if not line.startswith("  "):
                made, offset = _synset(line, part)
                found[part, offset] = made
    return found


def used_words(folder: Path) -> set[str]:
    """The words that WordNet's authors met in texts (cntlist(5WN)): the others are mostly rare."""
    keys = (line.split(" ")[0] for line in (folder / "cntlist.rev").read_text(encoding="utf-8").splitlines())
    return {key.partition("%")[0].replace("_", " ") for key in keys}


def _synset(line: str, part: str) -> tuple[Synset, str]:
    data, _, said = line.partition(" | ")
    tokens = data.split()
    count = int(tokens[3], 16)
    words = [re.sub(r"\(.*\)", "", word).replace("_", " ") for word in tokens[4 : 4 + 2 * count : 2]]
    gloss, *_ = re.split(r';\s*"', said.strip())
    made = Synset(
        part,
        int(tokens[1]),
        words,
        gloss.strip(),
        [text.rstrip(" .;?!") for text in re.findall(r'"([^"]{15,140})"', said)],
    )
    at = 5 + 2 * count
    for i in range(int(tokens[at - 1])):
        symbol, offset, of, _ = tokens[at + 4 * i : at + 4 * i + 4]
        made.pointers[symbol].append(("a" if of == "s" else of, offset))
    return made, tokens[0]


class Questions:
    """Makes lines of questions from synsets, in an order that depends on the seed alone."""

    def __init__(self, synsets: dict[tuple[str, str], Synset], used: set[str]) -> None:
        self._all, self._used = synsets, used
        self._rng = random.Random(SEED)  # noqa: S311
        self._examples = [text for one in synsets.values() for text in one.examples]
        self._glosses = [one.gloss for one in synsets.values()]
        self._senses: dict[tuple[str, str], list[Synset]] = defaultdict(list)
        for synset in synsets.values():
            for word in synset.words:
                self._senses[synset.part, word.lower()].append(synset)

    def lines(self) -> Iterator[dict[str, Any]]:
        """All lines, the kinds in turn."""
        for make, count in (
            (self._reading, READING),
            (self._sense, SENSES),
            (self._word, WORDS),
            (self._meaning, MEANINGS),
            (self._kind, KINDS),
            (self._field, FIELDS),
        ):
            synsets = list(self._all.values())
            self._rng.shuffle(synsets)
            made = (line for synset in synsets for line in make(synset))
            for _, line in zip(range(count), made, strict=False):
                yield line

    def _linked(self, synset: Synset, *symbols: str) -> list[Synset]:
        return [self._all[to] for symbol in symbols for to in synset.pointers[symbol] if to in self._all]

    def _siblings(self, synset: Synset) -> list[Synset]:
        above = self._linked(synset, "@")
        return [one for parent in above for one in self._linked(parent, "~") if one is not synset]

    def _is_used(self, synset: Synset) -> bool:
        return synset.words[0].lower() in self._used

    # Kinds of lines

    def _reading(self, synset: Synset) -> Iterator[dict[str, Any]]:
        """An example, and the same with a word replaced."""
        for example in synset.examples:
            found = _find(example, synset.words, synset.part)
            if found is None:
                continue
            word, start, end, suffix = found
            same = [w for w in synset.words if w.lower() != word.lower()]
            above = [w for one in self._linked(synset, "@") for w in one.words]
            against = [w for one in self._linked(synset, "!") for w in one.words]
            beside = [w for one in self._siblings(synset) for w in one.words]
            below = [w for one in self._linked(synset, "~") for w in one.words]
            true = self._pick(same) or self._pick(above)
            false = self._pick(against) or self._pick(beside if self._rng.random() < 0.7 else below)
            if true is None or false is None or false in same or _shares(false, word) or _shares(true, word):
                continue
            texts = [
                example[:start] + _inflected(w, suffix, synset.part) + example[end:] for w in (true, false)
            ]
            yield self._about(example, texts)

    def _about(self, example: str, texts: Sequence[str]) -> dict[str, Any]:
        """A state with an example in it, sometimes among others, and what is and is not said in it."""
        parts = [example]
        while self._rng.random() < 0.45 and len(parts) < 5:
            other = self._rng.choice(self._examples)
            parts.insert(self._rng.randint(0, len(parts)), other)
        if self._rng.random() < 0.5:
            unsaid = [self._rng.choice(self._examples) for _ in range(self._rng.randint(1, 4))]
            return self._choice(_joined(parts), self._rng.choice(SAID), texts[0], [*texts, *unsaid])
        nouls = [(self._framed(text), answer) for text, answer in zip(texts, (True, False), strict=True)]
        if self._rng.random() < 0.15:
            denied = f"It is not the case that {texts[0]}"
            nouls.append((denied, False))
        if self._rng.random() < 0.2:
            nouls.append((self._framed(self._rng.choice(self._examples)), False))
        if len(nouls) > 2:
            nouls.append((self._framed(example), True))
        self._rng.shuffle(nouls)
        questions = {f"q{i}": {"type": "noul", "instructions": text} for i, (text, _) in enumerate(nouls)}
        answers = {f"q{i}": answer for i, (_, answer) in enumerate(nouls)}
        return _line(_joined(parts), questions, answers)

    def _sense(self, synset: Synset) -> Iterator[dict[str, Any]]:
        """Which meaning a word has in an example."""
        for example in synset.examples[:1]:
            found = _find(example, synset.words, synset.part)
            if found is None:
                continue
            word = found[0]
            glosses = list(dict.fromkeys(one.gloss for one in self._senses[synset.part, word.lower()]))
            if 2 <= len(glosses) <= 6:
                yield self._choice(
                    _capital(example) + ".", f'What does "{word}" mean here?', synset.gloss, glosses
                )

    def _word(self, synset: Synset) -> Iterator[dict[str, Any]]:
        """Which word a gloss explains."""
        others = [one.words[0] for one in self._siblings(synset) if self._is_used(one)]
        if self._is_used(synset) and len(others) >= 2 and not _shares(synset.words[0], synset.gloss):
            chosen = self._rng.sample(others, min(len(others), self._rng.randint(2, 7)))
            yield self._choice(
                _capital(synset.gloss) + ".",
                self._rng.choice(EXPLAINED),
                synset.words[0],
                [*chosen, synset.words[0]],
            )

    def _meaning(self, synset: Synset) -> Iterator[dict[str, Any]]:
        """What a word means, of the meanings of words beside it and of any."""
        beside = [one.gloss for one in self._siblings(synset)]
        word = synset.words[0]
        if not self._is_used(synset) or len(beside) < 2 or _shares(word, synset.gloss):
            return
        own = {one.gloss for one in self._senses[synset.part, word.lower()]}
        drawn = self._rng.sample(beside, min(len(beside), self._rng.randint(1, 3)))
        drawn += [self._rng.choice(self._glosses) for _ in range(self._rng.randint(1, 3))]
        others = [gloss for gloss in drawn if gloss not in own]
        yield self._choice(word, self._rng.choice(MEANT), synset.gloss, [synset.gloss, *others])

    def _kind(self, synset: Synset) -> Iterator[dict[str, Any]]:
        """What a thing is a kind of."""
        above, beside = self._linked(synset, "@"), self._siblings(synset)
        if (
            synset.part != "n"
            or not self._is_used(synset)
            or not above
            or not beside
            or synset.words[0][0].isupper()
        ):
            return
        higher = self._linked(above[0], "@") or above
        is_kind = self._rng.choice([above[0], higher[0]]).words[0]
        is_none = self._rng.choice(beside).words[0]
        word = synset.words[0]
        questions = {
            "q0": {"type": "noul", "instructions": f"This is a kind of {is_kind}."},
            "q1": {"type": "noul", "instructions": f"This is a kind of {is_none}."},
        }
        state = (
            {"word": word, "meaning": synset.gloss} if self._rng.random() < 0.5 else f"{word}: {synset.gloss}"
        )
        yield _line(state, questions, {"q0": True, "q1": False})

    def _field(self, synset: Synset) -> Iterator[dict[str, Any]]:
        """What a word is about."""
        if synset.part == "n" and synset.field in NOUN_FIELDS and self._is_used(synset):
            right = NOUN_FIELDS[synset.field]
            others = [name for name in NOUN_FIELDS.values() if name != right]
            chosen = [right, *self._rng.sample(others, self._rng.randint(3, 11))]
            text = f"{synset.words[0]}: {synset.gloss}"
            yield self._choice(text, self._rng.choice(ABOUT), right, chosen)

    # Parts of lines

    def _choice(self, state: str, asked: str, right: str, options: Sequence[str]) -> dict[str, Any]:
        labels = list(dict.fromkeys(options))
        self._rng.shuffle(labels)
        question = {"type": "choice", "instructions": asked, "criteria": labels}
        return _line(state, {"q0": question}, {"q0": right})

    def _framed(self, text: str) -> str:
        frame = self._rng.choice(FRAMES)
        said = frame.format(text)
        return _capital(said) + ("?" if frame.startswith("Is ") else ".")

    def _pick(self, words: Sequence[str]) -> str | None:
        known = [word for word in words if word.lower() in self._used]
        return self._rng.choice(known) if known else None


def _line(state: Any, questions: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    return {"group": "words", "state": state, "questions": questions, "answers": answers}


def _find(example: str, words: Sequence[str], part: str) -> tuple[str, int, int, str] | None:
    """The first of the words that an example has: the word, where, and the ending that it has there."""
    for word in words:
        for suffix in ("", *(("s",) if part == "n" else ()), *(("s", "ed", "ing") if part == "v" else ())):
            found = re.search(rf"\b{re.escape(_inflected(word, suffix, part))}\b", example)
            if found:
                return word, found.start(), found.end(), suffix
    return None


def _inflected(word: str, suffix: str, part: str) -> str:
    """A word with a regular ending; of a verb of several words the first one bends."""
    if not suffix:
        return word
    head, blank, rest = word.partition(" ") if part == "v" else (word, "", "")
    if suffix == "s":
        bent = head + ("es" if re.search(r"(s|x|z|ch|sh)$", head) else "s")
        bent = head[:-1] + "ies" if re.search(r"[^aeiou]y$", head) else bent
    elif suffix == "ed":
        bent = head + ("d" if head.endswith("e") else "ed")
        bent = head[:-1] + "ied" if re.search(r"[^aeiou]y$", head) else bent
    else:
        bent = (head[:-1] if re.search(r"[^e]e$", head) else head) + "ing"
    return bent + blank + rest


def _shares(text: str, other: str) -> bool:
    """Whether two texts share a word, by its first five letters."""
    return bool({w[:5] for w in text.lower().split()} & {w[:5] for w in other.lower().split()})


def _joined(parts: Sequence[str]) -> str:
    return ". ".join(_capital(part) for part in parts) + "."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def main() -> None:
    """Read the dictionary's folder and write JSONL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dictionary", type=Path, help="the folder with data.noun and the like")
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    with given.output.open("w", encoding="utf-8") as file:
        for line in Questions(read(given.dictionary), used_words(given.dictionary)).lines():
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
