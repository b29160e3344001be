"""What both benchmarks ask: the questions, and texts that differ from seed to seed."""

from __future__ import annotations

from typing import Any

SENTENCE = (
    "the invoice for march was charged twice and our team cannot log in since this morning please look at it "
    "before noon because the warehouse waits for the delivery and nobody answers the phone"
)
WORDS = SENTENCE.split()

CHOICE = {
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


def text(words: int, seed: int) -> str:
    """A text of `words` words that differs from seed to seed."""
    return " ".join(WORDS[(i * (seed % 7 + 1) + seed) % len(WORDS)] for i in range(words)) + f" {seed}"
