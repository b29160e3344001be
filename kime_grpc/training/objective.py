"""What training minimises: cross entropy, and for scores how far from the right level probability lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kime_grpc.core.request import QuestionType
from kime_grpc.training.batches import Batch
from kime_grpc.training.settings import TrainSettings


@dataclass(frozen=True, slots=True)
class Loss:
    """The parts of a batch's loss, scalars; `total` is their weighted sum."""

    total: Tensor
    answer: Tensor
    ranked: Tensor
    consistency: Tensor
    act: Tensor


def loss(logits: Tensor, act: Tensor, batch: Batch, settings: TrainSettings) -> Loss:
    """The loss of a batch.

    Args:
        logits: float32 `[rows, options]`, -inf where a row has no slot.
        act: float32 `[rows, act outputs]`.
        batch: the rows.
        settings: the parts' weights.
    """
    log_p = logits.log_softmax(1).masked_fill(~batch.is_slot, 0.0)
    answer = -(batch.targets * log_p).sum(1).mean()
    ranked = _ranked_probability_loss(logits, batch)
    consistency = _disagreement(logits, batch)
    right = batch.targets.gather(1, logits.argmax(1, keepdim=True))[:, 0] >= 0.5
    # Output 0 is "answer"; what is wrong should go to another of the acts.
    act_log_p = act.log_softmax(1)
    answers = act_log_p[:, 0]
    others = act_log_p[:, 1:].logsumexp(1) if act.shape[1] > 1 else torch.zeros_like(answers)
    act_loss = -torch.where(right, answers, others).mean()
    total = (
        answer
        + settings.ranked_weight * ranked
        + settings.consistency_weight * consistency
        + settings.act_weight * act_loss
    )
    return Loss(total, answer, ranked, consistency, act_loss)


def _in_option_order(values: Tensor, batch: Batch) -> Tensor:
    """`[rows, options]` by slot to by option."""
    return torch.zeros_like(values).scatter(1, batch.order, values)


def _ranked_probability_loss(logits: Tensor, batch: Batch) -> Tensor:
    """The mean squared distance of the cumulated probabilities of scores. Epstein, 1969."""
    scores = batch.types == QuestionType.SCORE
    if not scores.any():
        return logits.new_zeros(())
    p = _in_option_order(logits.softmax(1), batch)[scores]
    target = _in_option_order(batch.targets, batch)[scores]
    levels = batch.is_slot[scores].sum(1)
    distance = (p.cumsum(1) - target.cumsum(1)).square().sum(1) / (levels - 1).clamp(min=1)
    return distance.sum() / len(logits)


def _disagreement(logits: Tensor, batch: Batch) -> Tensor:
    """The Jensen-Shannon divergence between the answers of twins."""
    if not len(batch.twins):
        return logits.new_zeros(())
    p = _in_option_order(logits.softmax(1), batch)
    one, other = p[batch.twins[:, 0]], p[batch.twins[:, 1]]
    middle = (one + other) / 2
    return (_divergence(one, middle) + _divergence(other, middle)).mean() / 2


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * ((p + 1e-9) / (q + 1e-9)).log()).sum(1)
