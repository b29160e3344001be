"""What is asked: questions, and texts of a given number of tokens, each different from every other."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TEXT = (
    "the invoice for march was charged twice and our team cannot log in since this morning please look at it "
    "before noon because the warehouse waits for the delivery and nobody answers the phone while the new "
    "contract still says that a refund takes ten days when a customer asks for one in writing"
)
WORDS = TEXT.split()

CHOICE: dict[str, Any] = {
    "type": "choice",
    "instructions": "Which team should handle this?",
    "criteria": {"billing": "payments", "technical": "bugs and outages", "sales": "pricing", "other": None},
}
TRIAGE: dict[str, Any] = {
    "team": CHOICE,
    "language": {
        "type": "choice",
        "instructions": "Which language?",
        "criteria": ["English", "German", "other"],
    },
    "frustration": {
        "type": "score",
        "instructions": "How frustrated is the customer?",
        "criteria": ["calm", "annoyed", "furious"],
    },
    "urgent": {"type": "noul", "instructions": "The message conveys urgency."},
    "refund": {"type": "noul", "instructions": "The customer asks for money back."},
}
SUBJECTS = ("the warehouse", "the invoice", "a contract", "the phone", "a delivery", "a refund", "the team")
CLAIMS = ("is mentioned", "is late", "is to blame", "is praised", "was promised", "costs money", "can wait")


def statements(count: int) -> dict[str, Any]:
    """So many different nouls, 49 at most."""
    pairs = [(subject, claim) for claim in CLAIMS for subject in SUBJECTS]
    return {
        f"n{i}": {"type": "noul", "instructions": f"{subject[0].upper()}{subject[1:]} {claim}."}
        for i, (subject, claim) in enumerate(pairs[:count])
    }


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of traffic.

    Attributes:
        name: a short one, such as `W2`.
        title: what it is, in words.
        questions: what every state is asked, in Laya's form.
        tokens: the length of each state that is asked about at once, in tokens.
        least_max_len: the budget that a checkpoint must have for it. The others cut what is too long, for
            every peer at the same token.
    """

    name: str
    title: str
    questions: dict[Any, Any]
    tokens: tuple[int, ...]
    least_max_len: int = 0

    @property
    def decisions(self) -> int:
        """How many questions are answered."""
        return len(self.questions) * len(self.tokens)


WORKLOADS = (
    Workload("W0", "one noul, a row of 60 tokens", {"refund": TRIAGE["refund"]}, (40,)),
    Workload("W1", "one choice of 4, 100 tokens", {"team": CHOICE}, (100,)),
    Workload("W2", "triage: 5 mixed questions, 300 tokens", TRIAGE, (300,)),
    Workload("W3", "10 questions, 512 tokens", {**TRIAGE, **statements(5)}, (512,)),
    Workload("W4", "50 questions, 512 tokens", {**TRIAGE, **statements(45)}, (512,)),
    Workload("W6a", "one choice of 4, 1,024 tokens", {"team": CHOICE}, (1024,), 1024),
    Workload("W6b", "one choice of 4, 8,192 tokens", {"team": CHOICE}, (8192,), 8192),
    Workload(
        "W7",
        "mixed: 32 states of 40 to 400 tokens, 3 questions each",
        {name: TRIAGE[name] for name in ("frustration", "urgent", "refund")},
        tuple(40 + round(360 * i / 31) for i in range(32)),
    ),
)


class Texts:
    """An endless source of texts."""

    def __init__(self, count: Callable[[str], int], seed: int) -> None:
        """Draw words.

        Args:
            count: how many tokens a text has.
            seed: two sources of one seed give the same texts.
        """
        self._count = count
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def of(self, tokens: int) -> str:
        """A text of as many tokens, or of one or two less."""
        words = [self._random.choice(WORDS) for _ in range(tokens)]
        low, high = 1, tokens  # a word has a token at least
        while low < high:
            middle = (low + high + 1) // 2
            if self._count(" ".join(words[:middle])) <= tokens:
                low = middle
            else:
                high = middle - 1
        return " ".join(words[:low])

    def states(self, workload: Workload) -> list[str]:
        """States for one round of a workload."""
        return [self.of(tokens) for tokens in workload.tokens]


def chosen(names: Sequence[str]) -> list[Workload]:
    """The workloads of these names; `W6` means both of that letter.

    Raises:
        ValueError: names every one that there is not.
    """
    unknown = [name for name in names if not any(one.name.startswith(name) for one in WORKLOADS)]
    if unknown:
        known = ", ".join(one.name for one in WORKLOADS)
        raise ValueError(f"no workload is called {', '.join(unknown)}; there are {known}")
    return [one for one in WORKLOADS if not names or any(one.name.startswith(name) for name in names)]
