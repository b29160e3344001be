"""Pictures of a training run: its losses, and how honest the probabilities are in the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from kime_grpc.core.calibration import Calibration
from kime_grpc.core.probabilities import distribution
from kime_grpc.training.evaluation import BINS, Answered, Quality

mpl.use("agg")
from matplotlib import pyplot as plt

SMOOTHED_OVER = 50


def plot_losses(losses: Path, looks: Sequence[tuple[int, Quality]], picture: Path) -> None:
    """Draw the loss of every step, and the accuracy of every look at the validation files.

    Args:
        losses: JSONL, a line a step.
        looks: (step, quality).
        picture: the PNG file to write.
    """
    steps = [json.loads(line) for line in losses.read_text(encoding="utf-8").splitlines()]
    at = np.array([step["step"] for step in steps])
    values = np.array([step["answer"] for step in steps])
    width = min(SMOOTHED_OVER, len(values))
    smooth = np.convolve(values, np.ones(width) / width, mode="valid")
    figure, left = plt.subplots(figsize=(8, 4.5))
    left.plot(at, values, color="tab:blue", alpha=0.2, linewidth=0.5)
    left.plot(at[width - 1 :], smooth, color="tab:blue", label=f"training, mean of {width} steps")
    if looks:
        where = [step for step, _ in looks]
        left.plot(where, [look.log_loss for _, look in looks], color="tab:orange", label="validation")
        right = left.twinx()
        right.plot(
            where, [look.accuracy for _, look in looks], color="tab:green", marker=".", label="accuracy"
        )
        right.set(ylabel="validation accuracy", ylim=(0, 1))
        right.legend(loc="upper right")
    left.set(xlabel="step", ylabel="cross entropy")
    left.legend(loc="upper left")
    figure.savefig(picture, dpi=120, bbox_inches="tight")
    plt.close(figure)


def plot_calibration(answered: Sequence[Answered], calibration: Calibration, picture: Path) -> None:
    """Draw accuracy against confidence, before and after the temperatures; a dot's size is its share."""
    figure, axes = plt.subplots(figsize=(5, 5))
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for name, used, colour in (
        ("before", Calibration((1.0, 1.0, 1.0), {}), "tab:orange"),
        ("after", calibration, "tab:blue"),
    ):
        top, right = [], []
        for one in answered:
            temperature = used.temperature(one.example.question.type, len(one.logits))
            p = distribution(one.logits, temperature).probabilities
            top.append(max(p))
            right.append(p.index(max(p)) == one.example.answer)
        bins = np.minimum((np.array(top) * BINS).astype(int), BINS - 1)
        points = [
            (np.array(top)[bins == b].mean(), np.array(right)[bins == b].mean(), (bins == b).mean())
            for b in np.unique(bins)
        ]
        x, y, share = zip(*points, strict=True)
        axes.plot(x, y, color=colour, linewidth=0.8)
        axes.scatter(
            x, y, s=[600 * s + 8 for s in share], color=colour, alpha=0.6, label=f"{name} calibration"
        )
    axes.set(xlabel="confidence (top probability)", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="upper left")
    figure.savefig(picture, dpi=120, bbox_inches="tight")
    plt.close(figure)
