"""What training minimises."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from kime_grpc.core.request import QuestionType
from kime_grpc.training.batches import Batch
from kime_grpc.training.objective import loss
from kime_grpc.training.settings import TrainSettings

SETTINGS = TrainSettings(train=(Path("a"),), validation=(Path("b"),))
ACT = torch.zeros(1, 2)


def batch(
    kind: QuestionType,
    orders: list[list[int]],
    targets: list[list[float]],
    twins: list[list[int]] | None = None,
) -> Batch:
    rows, options = len(orders), len(orders[0])
    return Batch(
        ids=torch.zeros(rows, 1, dtype=torch.long),
        is_token=torch.ones(rows, 1, dtype=torch.bool),
        segments=torch.zeros(rows, 1, dtype=torch.long),
        types=torch.full((rows,), int(kind)),
        markers=torch.zeros(rows, options, dtype=torch.long),
        is_slot=torch.ones(rows, options, dtype=torch.bool),
        order=torch.tensor(orders),
        targets=torch.tensor(targets),
        twins=torch.tensor(twins or [], dtype=torch.long).reshape(-1, 2),
    )


def test_a_coin_flip_costs_the_log_of_two() -> None:
    one = batch(QuestionType.NOUL, [[0, 1]], [[0.0, 1.0]])
    assert loss(torch.zeros(1, 2), ACT, one, SETTINGS).answer.item() == pytest.approx(math.log(2))


def test_slots_that_are_not_there_cost_nothing() -> None:
    one = batch(QuestionType.CHOICE, [[0, 1, 2]], [[0.0, 1.0, 0.0]])
    one.is_slot[0, 2] = False
    logits = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    total = loss(logits, ACT, one, SETTINGS)
    total.total.backward()
    assert total.answer.item() == pytest.approx(math.log(2))
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_a_score_that_is_far_off_costs_more_than_one_that_is_close() -> None:
    one = batch(QuestionType.SCORE, [[0, 1, 2]], [[1.0, 0.0, 0.0]])
    close, far = torch.tensor([[0.0, 9.0, 0.0]]), torch.tensor([[0.0, 0.0, 9.0]])
    near = loss(close, ACT, one, SETTINGS)
    assert near.ranked.item() == pytest.approx(0.5, abs=0.01)
    assert loss(far, ACT, one, SETTINGS).ranked.item() == pytest.approx(1.0, abs=0.01)


def test_the_distance_of_levels_does_not_depend_on_their_order_in_the_row() -> None:
    up = batch(QuestionType.SCORE, [[0, 1, 2]], [[1.0, 0.0, 0.0]])
    down = batch(QuestionType.SCORE, [[2, 1, 0]], [[0.0, 0.0, 1.0]])
    logits = torch.tensor([[0.3, 2.0, 1.0]])
    assert loss(logits, ACT, up, SETTINGS).ranked.item() == pytest.approx(
        loss(logits.flip(1), ACT, down, SETTINGS).ranked.item()
    )


def test_only_scores_are_ranked() -> None:
    one = batch(QuestionType.CHOICE, [[0, 1, 2]], [[1.0, 0.0, 0.0]])
    assert loss(torch.randn(1, 3), ACT, one, SETTINGS).ranked.item() == 0.0


def test_twins_that_agree_cost_nothing_and_others_do() -> None:
    pair = batch(QuestionType.NOUL, [[0, 1], [1, 0]], [[0.0, 1.0], [1.0, 0.0]], [[0, 1]])
    act = torch.zeros(2, 2)
    agree = torch.tensor([[0.0, 3.0], [3.0, 0.0]])
    differ = torch.tensor([[0.0, 3.0], [0.0, 3.0]])
    assert loss(agree, act, pair, SETTINGS).consistency.item() == pytest.approx(0.0, abs=1e-6)
    assert loss(differ, act, pair, SETTINGS).consistency.item() > 0.3


def test_the_act_head_learns_whether_the_answer_is_right() -> None:
    right = batch(QuestionType.NOUL, [[0, 1]], [[0.0, 1.0]])
    wrong = batch(QuestionType.NOUL, [[0, 1]], [[1.0, 0.0]])
    logits, sure = torch.tensor([[0.0, 3.0]]), torch.tensor([[9.0, 0.0]])
    assert loss(logits, sure, right, SETTINGS).act.item() < 0.01
    assert loss(logits, sure, wrong, SETTINGS).act.item() > 5
