"""What a training run is told, read from a TOML file. Each setting is documented where it is declared."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypeVar, get_type_hints

_T = TypeVar("_T")

PRECISIONS = ("f32", "bf16")


def _setting(default: _T, doc: str, least: float | None = None, most: float | None = None) -> _T:
    """A field with its documentation and, for numbers, its range."""
    made: _T = field(default=default, metadata={"doc": doc, "least": least, "most": most})
    return made


def _path(default: str, doc: str) -> Path:
    return _setting(Path(default), doc)


def _files(doc: str) -> tuple[Path, ...]:
    return _setting((), doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Everything that can be set on a training run.

    Raises ValueError with every problem at once. A field's documentation is in its metadata under `doc`.
    """

    base: str = _setting(
        "kime-mini",
        "What training starts from: a checkpoint by any of the names that `--model` takes, or a directory "
        "with a bare encoder (`config.json`, `model.safetensors`, `tokenizer.json`), which gets a new head.",
    )
    output: Path = _path(  # noqa: RUF009 - a path never changes
        "trained", "The directory for the checkpoint, its report and the run's state."
    )
    train: tuple[Path, ...] = _files("Labelled JSONL files to learn from.")
    validation: tuple[Path, ...] = _files("Files by which the best step is chosen.")
    calibration: tuple[Path, ...] = _files("Files to which the temperatures are fitted; else validation's.")
    test: tuple[Path, ...] = _files("Files that are only reported on.")
    seed: int = _setting(1, "Two runs of one seed and one number of steps give the same losses.", 0)
    steps: int = _setting(2000, "How many steps the optimiser makes.", 1)
    batch: int = _setting(32, "Questions a step.", 1)
    max_len: int = _setting(0, "A row's budget in tokens, also of what is made; 0 for the base's.", 0)
    head_max_len: int = _setting(0, "The budget of a row's head in tokens, likewise.", 0)
    head_layers: int = _setting(1, "Layers of a new head.", 0, 12)
    encoder_rate: float = _setting(6e-5, "The encoder's learning rate, after warm-up.", 0)
    head_rate: float = _setting(1.5e-4, "The head's.", 0)
    warm_up: int = _setting(150, "Steps over which the rates rise from 0; then they fall to 0 at the end.", 0)
    warm_start: int = _setting(
        0,
        "Steps over which the instructions, every option and the state are also pulled, ever less, to what "
        "the encoder made of each alone when the run began. For a bare encoder of sentence embeddings.",
        0,
    )
    weight_decay: float = _setting(0.01, "Of matrices; biases and norms have none.", 0)
    clip: float = _setting(1.0, "The largest norm of a step's gradient.", 0)
    dropout: float = _setting(
        0.0,
        "The encoder's dropout. On a CPU any costs half the speed, and the changed questions do its work.",
        0,
        0.9,
    )
    freeze_words: bool = _setting(True, "Leave the word embeddings as they are.")
    freeze_layers: int = _setting(
        0,
        "Leave all embeddings and so many of the encoder's lower layers as they are. Each saves time: with "
        "half of the layers a step takes two thirds.",
        0,
    )
    precision: str = _setting("f32", "`f32`, or `bf16` where the device is faster in it.")
    device: str = _setting(
        "auto", "Where the model is trained: `auto`, `cpu`, `cpu:THREADS`, `cuda`, `cuda:INDEX` or `mps`."
    )
    shuffle_options: float = _setting(0.7, "How often a question's options stand in another order.", 0, 1)
    drop_descriptions: float = _setting(0.2, "How often a choice shows its labels alone.", 0, 1)
    change_case: float = _setting(
        0.3, "How often labels and the keys of a state are spelled another way.", 0, 1
    )
    wrap_state: float = _setting(0.2, "How often a text becomes a field of an object.", 0, 1)
    noul_words: float = _setting(
        0.5,
        "How often a noul's sides have other words than false and true, so that these are not learnt.",
        0,
        1,
    )
    consistency: float = _setting(
        0.25, "The share of questions that also stand in the reverse order and are drawn together.", 0, 1
    )
    consistency_weight: float = _setting(1.0, "How much that pull counts beside the answers.", 0)
    ranked_weight: float = _setting(1.0, "How much a score's ranked probability loss counts.", 0)
    act_weight: float = _setting(0.1, "How much the act head's loss counts: whether the answer is right.", 0)
    evaluate_every: int = _setting(250, "Steps between two looks at the validation files.", 1)
    save_every: int = _setting(250, "Steps between two states that a stopped run can go on from.", 1)

    def __post_init__(self) -> None:
        """Check every field."""
        problems = [
            f"{item.name} {said}"
            for item in fields(self)
            if (said := _problem(getattr(self, item.name), item.type, item.metadata)) is not None
        ]
        if self.precision not in PRECISIONS:
            problems.append(f"precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}")
        needed = {"train": self.train, "validation": self.validation}
        problems += [f"{name}: name at least one file" for name, files in needed.items() if not files]
        if problems:
            raise ValueError("; ".join(problems))

    @classmethod
    def read(cls, file: Path, **overrides: Any) -> Self:
        """Read a TOML file; its paths are relative to it. `overrides` go before what it says.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no TOML, or with every problem of the settings.
        """
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file}: no TOML: {error}") from None
        known = {item.name for item in fields(cls)}
        if unknown := sorted(values.keys() - known):
            raise ValueError(
                f"{file}: unknown settings: {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        kinds = get_type_hints(cls)
        for name, value in values.items():
            if kinds[name] is Path and isinstance(value, str):
                values[name] = file.parent / value
            elif kinds[name] == tuple[Path, ...] and isinstance(value, list):
                values[name] = tuple(file.parent / part if isinstance(part, str) else part for part in value)
            elif kinds[name] is float and type(value) is int:
                values[name] = float(value)
        if (there := values.get("base")) and (file.parent / str(there)).is_dir():
            values["base"] = str(file.parent / there)
        try:
            return cls(**{**values, **overrides})
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [str(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _problem(value: Any, kind: Any, metadata: Any) -> str | None:
    """What is wrong with a value, or None."""
    if kind == "tuple[Path, ...]":
        is_good = isinstance(value, tuple) and all(isinstance(part, Path) for part in value)
        return None if is_good else f"must be a list of paths, not {value!r}"
    wanted = {"str": str, "bool": bool, "Path": Path, "int": int, "float": float}[kind]
    if type(value) is not wanted and not isinstance(value, Path):
        return f"must be of type {kind}, not {value!r}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, not {value}"
    least, most = metadata["least"], metadata["most"]
    if least is not None and value < least:
        return f"must be at least {least}, not {value}"
    if most is not None and value > most:
        return f"must be at most {most}, not {value}"
    return None
