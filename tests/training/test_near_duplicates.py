"""Texts that are nearly the same are found, and others are not."""

from __future__ import annotations

from kime_grpc.training.near_duplicates import near_duplicates

LETTER = (
    "Dear team, my washing machine has been leaking since Tuesday and nobody has called me back about it."
)
EDITED = "Dear team, my washing machine has been leaking since Friday and nobody has called me back about it."
OTHER = "The committee met in the old library and put off the vote on the new bicycle shed until spring."


def test_a_text_with_one_word_changed_is_nearly_the_same() -> None:
    assert near_duplicates([LETTER, OTHER, EDITED]) == [(0, 2)]


def test_texts_are_compared_with_others_only_when_there_are_others() -> None:
    assert near_duplicates([OTHER, EDITED], [LETTER, OTHER]) == [(0, 1), (1, 0)]
    assert near_duplicates([LETTER, EDITED], [OTHER]) == []


def test_a_part_of_a_longer_text_is_found() -> None:
    assert near_duplicates([f"{LETTER} {OTHER}"], [OTHER]) == [(0, 0)]


def test_short_texts_must_be_equal() -> None:
    assert near_duplicates(["Call me.", "call ME", "Call him."]) == [(0, 1)]


def test_what_many_texts_share_says_nothing() -> None:
    greeting = "to whom it may concern in this matter"
    texts = [f"{greeting} number {i} word{i} thing{i} place{i} year{i} month{i}" for i in range(60)]
    assert near_duplicates(texts) == []
