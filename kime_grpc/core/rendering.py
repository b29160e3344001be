"""A question as the texts that are tokenized, worded as the reference does: its head line, its options."""

from __future__ import annotations

from dataclasses import dataclass

from kime_grpc.core.json_text import JsonValue, to_text
from kime_grpc.core.request import Question, QuestionType

NOUL_DEFAULTS = ("no, the statement does not hold", "yes, the statement holds")


@dataclass(frozen=True, slots=True)
class QuestionTexts:
    """The texts of one question's head.

    Attributes:
        head: `"<type> question: <instructions>"`.
        options: one text an option, in slot order, each with the space in front that follows its marker.
    """

    head: str
    options: tuple[str, ...]


def render_state(state: JsonValue, mask_literal: str) -> str:
    """The state's text. A mask literal becomes a space, so that no text can pose as a marker."""
    return to_text(state).replace(mask_literal, " ")


def render_question(question: Question, mask_literal: str) -> QuestionTexts:
    """A question's texts. A mask literal in them becomes a space."""
    instructions = to_text(question.instructions).replace(mask_literal, " ")
    options = option_texts(question)
    if question.option_order is not None:
        options = tuple(options[i] for i in question.option_order)
    return QuestionTexts(
        head=f"{question.type.word} question: {instructions}",
        options=tuple(" " + option.replace(mask_literal, " ") for option in options),
    )


def option_texts(question: Question) -> tuple[str, ...]:
    """What the model reads for each option, in the options' own order."""
    if question.type is QuestionType.SCORE:
        return tuple(f"level {i}: {to_text(level)}" for i, level in enumerate(question.descriptions))
    if question.type is QuestionType.NOUL:
        return tuple(
            f"{label}: {default if _is_blank(side) else to_text(side)}"
            for label, side, default in zip(
                question.labels, question.descriptions, NOUL_DEFAULTS, strict=True
            )
        )
    return tuple(
        str(label) if _is_blank(description) else f"{label}: {to_text(description)}"
        for label, description in zip(question.labels, question.descriptions, strict=True)
    )


def _is_blank(description: JsonValue) -> bool:
    # Only None and "" mean "no description": 0 and False are descriptions.
    return description is None or (isinstance(description, str) and description == "")
