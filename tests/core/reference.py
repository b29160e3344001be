"""What the `laya` package makes of the same input, through its own functions.

Its tokenizer here is a stand-in that makes one token of every character, so that budgets are easy to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from laya.agent import Agent
from laya.common import QTYPES, build_sequence
from numpy.typing import NDArray

from kime_grpc.core.layout import SpecialTokens

MASK = "[MASK]"
SPECIAL = SpecialTokens(cls=1, sep=2, mask=3, mask_literal=MASK)


def encode(text: str) -> list[int]:
    """One token a character, apart from the special tokens' ids."""
    return [ord(character) + 16 for character in text]


class CharacterTokenizer:
    """As much of a tokenizer as `laya` calls."""

    mask_token = MASK
    cls_token_id, sep_token_id, mask_token_id, pad_token_id = SPECIAL.cls, SPECIAL.sep, SPECIAL.mask, 0

    def __call__(
        self, text: str, *, add_special_tokens: bool, truncation: bool = False, max_length: int | None = None
    ) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": encode(text)[: max_length if truncation else None]}


def refusal(state: Any, questions: Any) -> str | None:
    """Why `predict` refuses this before it reads a token, or None if it takes it."""
    if state is None or not isinstance(questions, dict):
        return "the state is null, or the questions are no dict"
    try:
        for key, question in questions.items():
            Agent._check_question(key, question)
            Agent._to_internal(question)
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def lay_out(
    state: Any, question: Mapping[str, Any], max_len: int, head_max_len: int
) -> tuple[list[int], list[int], dict[str, Any], dict[str, Any], dict[str, list[int]]]:
    """The row's ids, its markers, and what the options, the state and the parallel layout came to."""
    internal = Agent._to_internal(dict(question))
    row: tuple[list[int], list[int], dict[str, Any], dict[str, Any], dict[str, list[int]]] = build_sequence(
        CharacterTokenizer(),
        state,
        internal,
        max_len,
        head_max_len,
        option_order=internal.get("option_order"),
        truncate_left=isinstance(state, list),
        return_stats=True,
        return_truncation_stats=True,
        return_layout=True,
    )
    return row


def decode(
    question: Mapping[str, Any],
    logits: NDArray[np.float32],
    act: float = 1.0,
    temperature: Sequence[float] = (1.0, 1.0, 1.0),
    temperature_by_options: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The answer to a question whose row has these logits."""
    agent = Agent.__new__(Agent)
    agent.temperature = list(temperature)
    agent.temperature_by_options = dict(temperature_by_options or {})
    internal = Agent._to_internal(dict(question))
    item = {"markers": list(range(len(logits))), "qtype": QTYPES[question["type"]]}
    acts = np.array([[act, 1.0 - act]])
    answers: dict[str, dict[str, Any]] = agent._decode_answers(
        logits[None, :], acts, [item], ["q"], {"q": internal}, 0
    )
    return answers["q"]
