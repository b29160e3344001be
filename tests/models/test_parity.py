"""The packed forward gives the reference's numbers, for every kind of checkpoint and row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kime_grpc.models.model import Model
from tests.checkpoints import make_checkpoint
from tests.models.reference import Reference
from tests.models.rows import Rows

CLOSE = 1e-4
BIASES = {"attention_bias": True, "norm_bias": True, "mlp_bias": True}

KINDS: dict[str, dict[str, Any]] = {
    "modernbert": {},
    "modernbert, old configuration": {"style": "old"},
    "mmbert": {"arch": "mmbert"},
    "mmbert, old configuration": {"arch": "mmbert", "style": "old"},
    "bert": {"arch": "bert"},
    "parallel": {"option_layout": "parallel"},
    "parallel, old configuration": {"option_layout": "parallel", "style": "old", "layers": 5},
    "no head layers": {"head_layers": 0},
    "one head layer": {"head_layers": 1, "arch": "bert"},
    "three head layers": {"head_layers": 3},
    "one act output": {"act_costs": {}},
    "four act outputs": {"act_costs": {"a": 1, "b": 2, "c": 3}, "arch": "bert"},
    "biases": {"encoder": BIASES},
    "biases, wide": {"encoder": BIASES, "d": 320},
    "192 wide": {"d": 192, "head_layers": 1},
    "256 wide": {"d": 256, "arch": "bert"},
    "every layer full": {"encoder": {"global_attn_every_n_layers": 1}},
    "sliding layers first": {
        "encoder": {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
    },
    "narrow window": {"encoder": {"local_attention": 3}},
    "own thetas": {
        "encoder": {"rope_parameters": {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {}}}
    },
    "gelu_new": {"encoder": {"hidden_activation": "gelu_new"}},
    "relu": {"arch": "bert", "encoder": {"hidden_act": "relu"}},
    "uneven heads": {"d": 60, "arch": "bert", "encoder": {"num_attention_heads": 6}},
    "eps": {"encoder": {"norm_eps": 1e-2}},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_numbers_are_the_references(options: dict[str, Any], tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, **options)
    model, reference = Model.open(directory, torch.device("cpu")), Reference(directory)
    source = Rows(model)
    rows = [
        source.decided(options=options, state=state)
        for options, state in ((2, 0), (1, 9), (3, 40), (5, 90), (20, 60), (2, 400))
    ]
    widest = 0.0
    for output, (logits, act) in zip(model.forward(rows), reference.decide(rows), strict=True):
        np.testing.assert_allclose(output.logits, logits, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(output.act, act, rtol=0, atol=CLOSE)
        widest = max(widest, float(np.ptp(logits)))
    assert widest > 0.5  # else these rows could not tell a mistake from the truth
    texts = [source.embedded(tokens) for tokens in (1, 2, 30, 200)]
    for output, text in zip(model.forward(texts), texts, strict=True):
        np.testing.assert_allclose(output.embedding, reference.embed(text), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("options", [{}, {"arch": "mmbert"}, {"option_layout": "parallel"}], ids=str)
def test_long_rows_have_the_references_numbers(options: dict[str, Any], tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, **options)
    model, reference = Model.open(directory, torch.device("cpu")), Reference(directory)
    source = Rows(model)
    rows = [source.decided(options=4, state=state, max_len=1500) for state in (500, 900, 2000)]
    assert max(len(row.ids) for row in rows) == 1500
    for output, (logits, act) in zip(model.forward(rows), reference.decide(rows), strict=True):
        np.testing.assert_allclose(output.logits, logits, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(output.act, act, rtol=0, atol=CLOSE)
    text = source.embedded(1400)
    np.testing.assert_allclose(model.forward([text])[0].embedding, reference.embed(text), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("kind", ["modernbert", "mmbert", "bert"])
def test_a_window_ends_where_the_references_does(kind: str, checkpoints: dict[str, Path]) -> None:
    model, reference = Model.open(checkpoints[kind], torch.device("cpu")), Reference(checkpoints[kind])
    source = Rows(model)
    # Around one window, one block of queries, and what a block can see.
    for tokens in (16, 17, 18, 33, 63, 64, 65, 66, 95, 96, 97, 128, 191, 192, 193, 257):
        text = source.embedded(tokens)
        np.testing.assert_allclose(
            model.forward([text])[0].embedding, reference.embed(text), rtol=0, atol=CLOSE, err_msg=str(tokens)
        )
