"""ModernBERT's configuration is read as the reference's class reads the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from kime_grpc.models.fields import Fields
from kime_grpc.models.modernbert import ModernBertConfig

FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"hidden_size": 64, "num_hidden_layers": 7, "num_attention_heads": 4, "intermediate_size": 100},
        {"local_attention": 33},
        {"local_attention": 64, "sliding_window": 5},
        {"global_attn_every_n_layers": 1},
        {"global_attn_every_n_layers": 5, "num_hidden_layers": 11},
        {"layer_types": [SLIDING, FULL], "num_hidden_layers": 2},
        {"layer_types": [FULL, FULL], "num_hidden_layers": 2, "global_attn_every_n_layers": 2},
        {"layer_types": None, "rope_parameters": None},
        {"global_rope_theta": 7.0, "local_rope_theta": 8},
        {"global_rope_theta": 7.0},
        {"rope_theta": 5.0},
        {"rope_parameters": {FULL: {"rope_theta": 9.0, "rope_type": "default"}}, "local_rope_theta": 3.0},
        {
            "rope_parameters": {FULL: {"rope_theta": 9}, SLIDING: {"rope_theta": 2.5}},
            "global_rope_theta": 1.0,
        },
        {"rope_parameters": {FULL: {}, SLIDING: {"type": "default"}}, "global_rope_theta": 4.0},
        {"norm_eps": 1e-6, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "vocab_size": 99},
        {"max_position_embeddings": 77, "hidden_activation": "gelu_pytorch_tanh", "unknown": [1]},
    ],
    ids=str,
)
def test_a_configuration_means_what_it_means_to_the_reference(fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "modernbert", **fields}))
    reference = AutoConfig.from_pretrained(tmp_path)
    problems: list[str] = []
    ours = ModernBertConfig.from_fields(Fields("config.json", fields, problems))
    assert problems == []
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "max_position_embeddings",
        "norm_eps",
        "norm_bias",
        "attention_bias",
        "mlp_bias",
    ):
        assert getattr(ours, name) == getattr(reference, name), name
    assert ours.window == reference.sliding_window
    assert list(ours.layer_types) == reference.layer_types
    for kind in (FULL, SLIDING):
        assert ours.rope_theta[kind] == reference.rope_parameters[kind]["rope_theta"]
