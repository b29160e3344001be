"""What the model says of a row, or of a text to embed, is the same to the last bit, alone and in any company.

Checkpoints of unusual widths; `tests/parity/test_bits.py` has the usual ones, through the whole engine. The
promise holds where oneDNN's operator keeps a token's bits: that is what it stands on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kime_grpc.models.model import Model
from tests.checkpoints import make_checkpoint
from tests.models.machine import needs_equal_bits
from tests.models.rows import Rows, same_bits

KINDS: dict[str, dict[str, Any]] = {
    "modernbert": {},
    "biases and other widths": {
        "d": 320,
        "head_layers": 0,
        "encoder": {"attention_bias": True, "norm_bias": True, "mlp_bias": True},
    },
    "heads that end between boundaries": {
        "d": 60,
        "arch": "bert",
        "encoder": {"num_attention_heads": 6, "hidden_act": "gelu_new", "intermediate_size": 77},
    },
}
ROWS, BATCHES = 8, 20

pytestmark = needs_equal_bits


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_row_has_the_same_bits_alone_and_in_twenty_batches(
    options: dict[str, Any], threads: int, tmp_path: Path
) -> None:
    model = Model.open(make_checkpoint(tmp_path, **options), torch.device("cpu"))
    source = Rows(model, seed=threads)
    rows = [source.decided(options=3, state=60), *(source.any() for _ in range(ROWS - 1))]
    alone = [model.forward([row])[0] for row in rows]
    for batch in source.batches(ROWS, BATCHES):
        for index, output in zip(batch, model.forward([rows[i] for i in batch]), strict=True):
            assert same_bits(output, alone[index])


def test_a_row_has_the_same_bits_before_and_after_longer_ones(checkpoints: dict[str, Path]) -> None:
    model = Model.open(checkpoints["modernbert"], torch.device("cpu"))
    source = Rows(model)
    row = source.decided(options=3, state=100)
    before = model.forward([row])[0]
    model.forward([source.embedded(3000)])
    assert same_bits(model.forward([row])[0], before)
    fresh = Model.open(checkpoints["modernbert"], torch.device("cpu"))
    fresh.forward([source.embedded(3000)])
    assert same_bits(fresh.forward([row])[0], before)
