"""Mix the weights of two checkpoints of one training, and fit the temperatures anew.

    python blend.py OUTPUT CHECKPOINT EARLIER SHARE CALIBRATION

SHARE of each weight comes from CHECKPOINT and the rest from EARLIER, from which it was trained on: what the
later one learnt last and what it forgot meet in the middle (Wortsman et al., Robust fine-tuning of zero-shot
models, 2022). CALIBRATION is a labelled file that neither learnt from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

from kime_grpc.models.tokenizer import TextTokenizer
from kime_grpc.training.batches import Batcher
from kime_grpc.training.evaluation import answer_all, fit_temperatures
from kime_grpc.training.examples import read_examples
from kime_grpc.training.network import Base


def blend(output: Path, checkpoint: Path, earlier: Path, share: float, calibration: Path) -> None:
    """Write the mixed checkpoint.

    Args:
        output: the directory to write.
        checkpoint: gives `share` of each weight, and everything else.
        earlier: gives the rest of each weight.
        share: from 0 to 1.
        calibration: what the temperatures are fitted to.
    """
    base = Base(checkpoint, head_layers=1)
    other = load_file(earlier / "model.safetensors")
    # Half precision is what ships, so it is what is calibrated.
    base.network.load_state_dict(
        {
            name: torch.lerp(other[name].float(), tensor, share).half().float()
            for name, tensor in base.network.state_dict().items()
        }
    )
    batcher = Batcher(TextTokenizer.open(checkpoint), base.config["max_len"], base.config["head_max_len"])
    fitted = fit_temperatures(answer_all(base.network, batcher, read_examples([calibration])))
    temperatures = {
        "temperature": list(fitted.by_type),
        "temperature_by_options": dict(fitted.by_bucket),
    }
    base.save(output, base.config | temperatures)


def main() -> None:
    """Mix and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("share", type=float)
    parser.add_argument("calibration", type=Path)
    given = parser.parse_args()
    blend(given.output, given.checkpoint, given.earlier, given.share, given.calibration)


if __name__ == "__main__":
    main()
