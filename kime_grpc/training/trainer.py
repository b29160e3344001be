"""A training run: steps, looks at the validation files, a state to go on from, and in the end a checkpoint.

The output directory gets `checkpoint/`, `report.json`, `losses.png`, `calibration.png`, `losses.jsonl` (a
line a step) and, while the run is not over, `state.pt`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kime_grpc.core.calibration import Calibration
from kime_grpc.core.json_text import to_text
from kime_grpc.core.request import QuestionType
from kime_grpc.engine.devices import resolve_device
from kime_grpc.models.hub import resolve
from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.batches import Batch, Batcher
from kime_grpc.training.evaluation import (
    Answered,
    Quality,
    answer_all,
    by_kind,
    fit_temperatures,
    unchanged_when_reversed,
)
from kime_grpc.training.examples import MAX_LISTED, Example, read_examples
from kime_grpc.training.gradients import Gradients
from kime_grpc.training.near_duplicates import near_duplicates
from kime_grpc.training.network import Base
from kime_grpc.training.report import plot_calibration, plot_losses
from kime_grpc.training.settings import TrainSettings
from kime_grpc.training.warm_start import WarmStart

_log = logging.getLogger(__name__)

STATE_FILE = "state.pt"
LOSSES_FILE = "losses.jsonl"
REPORT_FILE = "report.json"
CHECKPOINT_FOLDER = "checkpoint"
_LAYER = re.compile(r"encoder\.(?:encoder\.layer|layers)\.(\d+)\.")
_KINDS = ("all", *(kind.word for kind in QuestionType))
_UNCALIBRATED = Calibration.from_config([1.0, 1.0, 1.0], {})


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is.

    Attributes:
        step: steps made, of `steps`.
        loss: the last step's.
        validation: the last look at the validation files; None before the first.
    """

    step: int
    steps: int
    loss: float
    validation: Quality | None


class Trainer:
    """One run."""

    def __init__(self, settings: TrainSettings) -> None:
        """Read the data and open what training starts from.

        Raises:
            OSError, ValueError, KimeError: what is wrong with either.
        """
        self._settings = settings
        device = resolve_device(settings.device)
        self._device = torch.device(device.torch_name)
        torch.set_num_threads(device.threads)
        # Dropout draws from one stream of numbers, which threads would share in no certain order.
        parts = device.threads if self._device.type == "cpu" and not settings.dropout else 1
        torch.manual_seed(settings.seed)  # for a fresh head
        torch.use_deterministic_algorithms(mode=True)
        self._train = read_examples(settings.train)
        self._validation = read_examples(settings.validation)
        if not self._train or not self._validation:
            raise ValueError("the training and the validation files need at least one labelled question each")
        self._alike = _count_alike(settings, self._train)
        self._base = Base(_directory(settings.base), settings.head_layers, settings.dropout)
        self._network = self._base.network.to(self._device)
        self._checkpoint = settings.output / CHECKPOINT_FOLDER
        self._base.save_tokenizer(self._checkpoint)
        tokenizer = TextTokenizer.open(self._checkpoint)
        self._max_len = settings.max_len or self._base.config.get("max_len", 512)
        self._head_max_len = settings.head_max_len or self._base.config.get("head_max_len", 192)
        if self._max_len > self._base.positions:
            raise ValueError(
                f"max_len is {self._max_len}, but the encoder takes {self._base.positions} tokens"
            )
        self._batcher = Batcher(tokenizer, self._max_len, self._head_max_len)
        self._optimiser = torch.optim.AdamW(_groups(self._network, settings))
        self._gradients = Gradients(
            self._network, parts, WarmStart(self._network) if settings.warm_start else None
        )
        self._rates = [group["lr"] for group in self._optimiser.param_groups]
        self._step = 0
        self._best: tuple[float, dict[str, Tensor]] = (math.inf, {})
        self._looks: list[tuple[int, Quality]] = []
        if (settings.output / STATE_FILE).is_file():
            self._load_state()

    def run(self, on_step: Callable[[Progress], None] = lambda _: None, until: int | None = None) -> None:
        """Make the steps that are left, then write the checkpoint and its report.

        Args:
            on_step: told after every step.
            until: stop after this step, with a state to go on from and no checkpoint.
        """
        settings = self._settings
        last = settings.steps if until is None else min(until, settings.steps)
        batches = self._batcher.training(self._train, settings, self._step, self._gradients.parts)
        _keep_lines(settings.output / LOSSES_FILE, self._step)
        with (settings.output / LOSSES_FILE).open("a", encoding="utf-8") as lines:
            while self._step < last:
                parts = self._make_step(next(batches))
                self._step += 1
                lines.write(json.dumps({"step": self._step, **parts}) + "\n")
                if self._step % settings.evaluate_every == 0 or self._step == settings.steps:
                    self._look()
                if self._step % settings.save_every == 0 or self._step == last:
                    lines.flush()
                    self._save_state()
                look = self._looks[-1][1] if self._looks else None
                on_step(Progress(self._step, settings.steps, parts["total"], look))
        if self._step == settings.steps:
            self._finish()

    # Steps

    def _make_step(self, batches: Sequence[Batch]) -> dict[str, float]:
        settings = self._settings
        self._network.train()
        # Dropout, too, depends on the seed and the step alone.
        torch.manual_seed(settings.seed * 1_000_003 + self._step)
        for group, rate in zip(self._optimiser.param_groups, self._rates, strict=True):
            group["lr"] = rate * schedule(self._step, settings)
        warm_weight = max(0.0, 1 - self._step / settings.warm_start) if settings.warm_start else 0.0
        losses = self._gradients.set(batches, settings, warm_weight)
        if not all(map(math.isfinite, losses.values())):
            raise ValueError(f"the loss is no number any more at step {self._step + 1}; lower the rates")
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), settings.clip or math.inf)
        self._optimiser.step()
        return losses

    def _look(self) -> None:
        kinds = by_kind(self._answer(self._validation), _UNCALIBRATED)
        seen = kinds["all"]
        self._looks.append((self._step, seen))
        accuracies = ", ".join(f"{kind} {kinds[kind].accuracy:.1%}" for kind in _KINDS if kind in kinds)
        _log.info(
            "step %d of %d: %s; log loss %.4f", self._step, self._settings.steps, accuracies, seen.log_loss
        )
        # The accuracy of validation, and between equals the loss.
        rank = -seen.accuracy + 1e-3 * seen.log_loss
        if rank < self._best[0]:
            weights = {name: tensor.clone() for name, tensor in self._network.state_dict().items()}
            self._best = (rank, weights)

    # The state of a run

    def _save_state(self) -> None:
        state = {
            "settings": _identity(self._settings),
            "step": self._step,
            "network": self._network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "best": self._best,
            "looks": [(step, asdict(look)) for step, look in self._looks],
        }
        path = self._settings.output / STATE_FILE
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def _load_state(self) -> None:
        state = torch.load(self._settings.output / STATE_FILE, map_location=self._device, weights_only=True)
        if state["settings"] != _identity(self._settings):
            raise ValueError(
                f"{self._settings.output} holds the state of a run with other settings; "
                f"go on with those, or remove {STATE_FILE} to start anew"
            )
        self._step = state["step"]
        self._network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._best = state["best"]
        self._looks = [(step, Quality(**look)) for step, look in state["looks"]]
        _log.info("going on after step %d", self._step)

    # The end

    def _finish(self) -> None:
        settings = self._settings
        self._network.load_state_dict(self._best[1])
        # Half precision is what ships, so it is what is calibrated and judged.
        self._network.load_state_dict(
            {name: tensor.half().float() for name, tensor in self._network.state_dict().items()}
        )
        held_out = read_examples(settings.calibration) if settings.calibration else self._validation
        calibration = fit_temperatures(self._answer(held_out))
        self._base.save(self._checkpoint, self._config(calibration))
        parts = {"validation": self._validation, "calibration": held_out}
        if settings.test:
            parts["test"] = read_examples(settings.test)
        answered = {name: self._answer(examples) for name, examples in parts.items()}
        report = {
            "settings": settings.as_json(),
            "training_questions": len(self._train),
            "states_like_training": self._alike,
            "parameters": sum(tensor.numel() for tensor in self._network.state_dict().values()),
            "temperature": list(calibration.by_type),
            "temperature_by_options": dict(calibration.by_bucket),
            "quality": {name: _as_json(by_kind(said, calibration)) for name, said in answered.items()},
            "order": {
                name: unchanged_when_reversed(self._network, self._batcher, said)
                for name, said in answered.items()
            },
            "validation": [{"step": step, **asdict(look)} for step, look in self._looks],
        }
        (settings.output / REPORT_FILE).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        plot_losses(settings.output / LOSSES_FILE, self._looks, settings.output / "losses.png")
        last = answered.get("test", answered["validation"])
        plot_calibration(last, calibration, settings.output / "calibration.png")
        (settings.output / STATE_FILE).unlink(missing_ok=True)

    def _answer(self, examples: Sequence[Example]) -> list[Answered]:
        return answer_all(self._network, self._batcher, examples)

    def _config(self, calibration: Calibration) -> dict[str, Any]:
        return self._base.config | {
            "max_len": self._max_len,
            "head_max_len": self._head_max_len,
            "temperature": list(calibration.by_type),
            "temperature_by_options": dict(calibration.by_bucket),
        }


def schedule(step: int, settings: TrainSettings) -> float:
    """What the learning rates are multiplied by: up in a line, then down to 0."""
    if step < settings.warm_up:
        return (step + 1) / settings.warm_up
    return (settings.steps - step) / max(1, settings.steps - settings.warm_up)


def _groups(network: torch.nn.Module, settings: TrainSettings) -> list[dict[str, Any]]:
    """Parameters by rate and decay."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in network.named_parameters():
        if _is_frozen(name, settings):
            parameter.requires_grad_(False)
        if parameter.requires_grad:
            rate = settings.encoder_rate if name.startswith("encoder.") else settings.head_rate
            decay = settings.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]


def _is_frozen(name: str, settings: TrainSettings) -> bool:
    """Whether a parameter stays as it is."""
    if name.endswith(("word_embeddings.weight", "tok_embeddings.weight")):
        return settings.freeze_words or settings.freeze_layers > 0
    if name.startswith("encoder.embeddings."):
        return settings.freeze_layers > 0
    layer = _LAYER.match(name)
    return layer is not None and int(layer[1]) < settings.freeze_layers


def _directory(base: str) -> Path:
    """The directory of a model's name, or of a bare encoder."""
    path = Path(base).expanduser()
    found = path if path.is_dir() else resolve(base).path
    if not found.is_dir():
        raise ValueError(f"base: {found} is one file; training starts from a directory")
    return found


def _identity(settings: TrainSettings) -> dict[str, Any]:
    """What of the settings a run cannot change on its way."""
    free = {"output", "device", "evaluate_every", "save_every", "test"}
    return {name: value for name, value in settings.as_json().items() if name not in free}


def _count_alike(settings: TrainSettings, train: Sequence[Example]) -> dict[str, int]:
    """How many states of each held-out split are nearly one of training's; warns of them."""
    learnt = list({to_text(example.state): None for example in train})
    found = {}
    for split in ("validation", "calibration", "test"):
        held_out = {to_text(one.state): one.where for one in read_examples(getattr(settings, split))}
        alike = sorted({i for i, _ in near_duplicates(list(held_out), learnt)})
        found[split] = len(alike)
        if alike:
            places = ", ".join(list(held_out.values())[i] for i in alike[:MAX_LISTED])
            _log.warning("%d states of %s are nearly ones of training: %s", len(alike), split, places)
    return found


def _as_json(qualities: Mapping[str, Quality]) -> dict[str, Any]:
    return {kind: asdict(found) for kind, found in qualities.items()}


def _keep_lines(path: Path, count: int) -> None:
    """Cut a file to its first lines: those after the state that a run goes on from are made again."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[:count]
        path.write_text("".join(lines), encoding="utf-8")


# Deterministic matrix products on a GPU need this before CUDA starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
