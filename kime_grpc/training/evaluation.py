"""How well a network answers labelled questions, and the temperatures that make its probabilities honest."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from kime_grpc.core.calibration import TEMPERATURE_MAX, TEMPERATURE_MIN, Calibration, bucket
from kime_grpc.core.probabilities import distribution
from kime_grpc.core.request import QuestionType
from kime_grpc.training.augmentation import reversed_order
from kime_grpc.training.batches import Batcher
from kime_grpc.training.examples import Example
from kime_grpc.training.network import Network

BINS = 10
EVALUATED_AT_ONCE = 64
# Fewer examples say too little for a temperature of their own.
LEAST_PER_BUCKET = 50


@dataclass(frozen=True, slots=True)
class Answered:
    """A labelled question and what the network said: float32 `[options]`, in the options' own order."""

    example: Example
    logits: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Quality:
    """How good a set of answers is.

    Attributes:
        questions: how many there are.
        accuracy: the share that is right.
        margin: half the width of the accuracy's 95 % interval (normal approximation).
        log_loss: the mean of minus the log of the right answer's probability, natural.
        ece: expected calibration error of the top probability over `BINS` bins of equal width.
    """

    questions: int
    accuracy: float
    margin: float
    log_loss: float
    ece: float


@torch.inference_mode()
def answer_all(network: Network, batcher: Batcher, examples: Sequence[Example]) -> list[Answered]:
    """Ask the network every question, as it is."""
    network.eval()
    found: dict[int, Answered] = {}
    by_length = sorted(range(len(examples)), key=lambda i: len(str(examples[i].state)))
    for start in range(0, len(by_length), EVALUATED_AT_ONCE):
        chosen = by_length[start : start + EVALUATED_AT_ONCE]
        batch = batcher.batch([examples[i] for i in chosen])
        logits, _ = network(batch.to(network.temperature.device))
        for i, row, order, is_slot in zip(chosen, logits.cpu(), batch.order, batch.is_slot, strict=True):
            said = torch.empty(int(is_slot.sum()))
            said[order[is_slot]] = row[is_slot]
            found[i] = Answered(examples[i], said.numpy())
    return [found[i] for i in range(len(examples))]


def unchanged_when_reversed(network: Network, batcher: Batcher, answered: Sequence[Answered]) -> float:
    """The share of answers that are the same when the options stand the other way about."""
    turned = [replace(one.example, question=reversed_order(one.example.question)) for one in answered]
    same = [
        int(one.logits.argmax()) == int(other.logits.argmax())
        for one, other in zip(answered, answer_all(network, batcher, turned), strict=True)
    ]
    return sum(same) / len(same)


def chance(examples: Sequence[Example]) -> float:
    """The accuracy of guessing."""
    return sum(1 / len(example.target) for example in examples) / len(examples)


def quality(answered: Sequence[Answered], calibration: Calibration) -> Quality:
    """Judge answers."""
    if not answered:
        return Quality(0, math.nan, math.nan, math.nan, math.nan)
    p = [_probabilities(one, calibration) for one in answered]
    right = np.array([int(np.argmax(q)) == a.example.answer for q, a in zip(p, answered, strict=True)])
    top = np.array([q.max() for q in p])
    losses = [
        -float(np.dot(a.example.target, np.log(np.maximum(q, 1e-12))))
        for q, a in zip(p, answered, strict=True)
    ]
    accuracy = float(right.mean())
    margin = 1.96 * math.sqrt(accuracy * (1 - accuracy) / len(right))
    return Quality(len(right), accuracy, margin, float(np.mean(losses)), calibration_error(top, right))


def by_kind(answered: Sequence[Answered], calibration: Calibration) -> Mapping[str, Quality]:
    """The quality of all answers, of each type's and of each group's."""
    kinds: dict[str, list[Answered]] = defaultdict(list)
    for one in answered:
        kinds["all"].append(one)
        kinds[one.example.question.type.word].append(one)
        if one.example.group:
            kinds[f"group {one.example.group}"].append(one)
    return {kind: quality(kinds[kind], calibration) for kind in kinds}


def calibration_error(top: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Expected calibration error: the mean distance of confidence and accuracy, weighted by a bin's size."""
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    errors = [
        abs(top[bins == b].mean() - right[bins == b].mean()) * (bins == b).sum() for b in np.unique(bins)
    ]
    return float(sum(errors) / len(top))


def fit_temperatures(answered: Sequence[Answered]) -> Calibration:
    """The temperatures, by type and for large enough buckets, of the least log loss."""
    by_type = []
    for kind in QuestionType:
        of_type = [one for one in answered if one.example.question.type is kind]
        by_type.append(_best_temperature(of_type) if of_type else 1.0)
    buckets: dict[str, list[Answered]] = defaultdict(list)
    for one in answered:
        buckets[bucket(one.example.question.type, len(one.logits))].append(one)
    fitted = {
        name: _best_temperature(found)
        for name, found in sorted(buckets.items())
        if len(found) >= LEAST_PER_BUCKET
    }
    choice, score, noul = by_type
    return Calibration((choice, score, noul), fitted)


def _best_temperature(answered: Sequence[Answered]) -> float:
    """The temperature of the least log loss, by golden section over its logarithm: there is one valley."""
    golden = (math.sqrt(5) - 1) / 2
    low, high = math.log(TEMPERATURE_MIN), math.log(TEMPERATURE_MAX)
    while high - low > 1e-4:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if _log_loss(answered, math.exp(left)) < _log_loss(answered, math.exp(right)):
            high = right
        else:
            low = left
    return round(math.exp((low + high) / 2), 4)


def _log_loss(answered: Sequence[Answered], temperature: float) -> float:
    total = 0.0
    for one in answered:
        z = one.logits.astype(np.float64) / temperature
        log_p = z - z.max() - np.log(np.exp(z - z.max()).sum())
        total -= float(np.dot(one.example.target, log_p))
    return total


def _probabilities(one: Answered, calibration: Calibration) -> NDArray[np.float64]:
    temperature = calibration.temperature(one.example.question.type, len(one.logits))
    return np.array(distribution(one.logits, temperature).probabilities)
